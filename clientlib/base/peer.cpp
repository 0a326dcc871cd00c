#include "clientlib/base/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

namespace headrace {
namespace {

std::vector<gid_t> supplementary_groups(int socket) {
  std::vector<gid_t> groups(32);
  auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int status = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  if (status != 0 && errno == ERANGE) {  // `size` is what it takes
    groups.resize(size / sizeof(gid_t));
    status = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  }
  groups.resize(status == 0 ? size / sizeof(gid_t) : 0);
  return groups;
}

bool is_member(int socket, gid_t primary, const std::vector<std::uint32_t>& allowed) {
  if (allowed.empty()) return false;
  const auto listed = [&](gid_t group) {
    return std::find(allowed.begin(), allowed.end(), group) != allowed.end();
  };
  if (listed(primary)) return true;
  const auto groups = supplementary_groups(socket);
  return std::any_of(groups.begin(), groups.end(), listed);
}

/// Parses a number as libzmq writes it: in the process's global locale, which may group its digits
/// ("12,345").
std::optional<std::uint32_t> number_of(std::string_view text) {
  std::string digits;
  bool was_digit = false;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (digit) digits += c;
    if (!digit && !was_digit) return std::nullopt;
    was_digit = digit;
  }
  std::uint32_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || !was_digit) return std::nullopt;
  return number;
}

}  // namespace

bool is_trusted_user(std::uint32_t uid, const std::vector<std::uint32_t>& allowed) {
  return uid == 0 || uid == ::geteuid() || std::find(allowed.begin(), allowed.end(), uid) != allowed.end();
}

Result<Peer> check_peer(int socket, const AllowedUsers& allowed) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail(ErrorCode::kPermissionDenied, "the kernel returned no peer credentials (SO_PEERCRED)");
  if (is_trusted_user(peer.uid, allowed.uids) || is_member(socket, peer.gid, allowed.gids))
    return Peer{peer.pid, peer.uid};
  const std::string own = std::to_string(::geteuid());
  return fail(ErrorCode::kPermissionDenied, "user " + std::to_string(peer.uid) + " (pid " +
                                                std::to_string(peer.pid) + ") is neither user " + own +
                                                (own == "0" ? "" : ", root") + " nor an allowed user");
}

std::optional<std::uint32_t> uid_of_peer_address(const char* text) {
  if (text == nullptr) return std::nullopt;
  std::string_view address = text;
  std::optional<std::uint32_t> number;
  for (int i = 0; i < 3; ++i) {  // pid, gid, uid
    const auto colon = address.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    number = number_of(address.substr(colon + 1));
    if (!number) return std::nullopt;
    address.remove_suffix(address.size() - colon);
  }
  return number;
}

}  // namespace headrace
