#include "server/metrics/tcp_user.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

namespace headrace::server::metrics {
namespace {

/// The kernel prints addresses as words of the machine's byte order.
std::string words(const void* address, std::size_t bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>(address) + at, sizeof word);
    out += fmt::format("{:08X}", word);
  }
  return out;
}

/// Adds the owners of sockets from `local` to `remote_port` of any address.
void add_owners(const char* table, const std::string& local, const std::string& remote_port,
                std::set<uid_t>& owners) {
  std::ifstream file(table);
  std::string line;
  while (std::getline(file, line)) {
    if (line.find(local) == std::string::npos) continue;  // reading the columns takes longer
    std::istringstream row(line);
    std::string number, from, to, state, queues, timer, retransmits;
    uid_t owner = 0;
    std::uint64_t timeout = 0, inode = 0;
    const bool read = static_cast<bool>(row >> number >> from >> to >> state >> queues >> timer >>
                                        retransmits >> owner >> timeout >> inode);
    // A socket that has been closed has no inode, and counts as root's.
    if (read && inode != 0 && from == local && to.ends_with(remote_port)) owners.insert(owner);
  }
}

}  // namespace

std::optional<uid_t> tcp_user(const std::string& peer, std::uint16_t peer_port, std::uint16_t port) {
  const std::string at = fmt::format(":{:04X}", peer_port), to = fmt::format(":{:04X}", port);
  // Sockets with this address and port, but connected to other addresses of this machine, may be another
  // user's.
  std::set<uid_t> owners;
  in6_addr six{};
  in_addr four{};
  if (::inet_pton(AF_INET, peer.c_str(), &four) == 1) {
    const std::string address = words(&four, sizeof four);
    add_owners("/proc/net/tcp", address + at, to, owners);
    // Sockets of IPv6 that are connected to an IPv4 address.
    add_owners("/proc/net/tcp6", "0000000000000000" + words("\0\0\xff\xff", 4) + address + at, to, owners);
  } else if (::inet_pton(AF_INET6, peer.c_str(), &six) == 1) {
    add_owners("/proc/net/tcp6", words(&six, sizeof six) + at, to, owners);
  }
  return owners.size() == 1 ? std::optional(*owners.begin()) : std::nullopt;
}

}  // namespace headrace::server::metrics
