// What HTTP servers answer: headers, listings and errors of S3, and whole replies over a socket.
// Input: the kind (one byte), then its text.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <thread>

#include "clientlib/base/unique_fd.h"
#include "server/remote/content_range.h"
#include "server/remote/remote.h"
#include "server/remote/s3.h"
#include "tests/fuzz/fuzz.h"

namespace headrace::server::remote {
namespace {

void read_content_range(std::string_view text) {
  const auto range = parse_content_range(text);
  if (!range) return;
  require(range->first <= range->last, "a range has an order");
  const std::string total = range->total ? std::to_string(*range->total) : "*";
  const auto again = parse_content_range("bytes " + std::to_string(range->first) + "-" +
                                         std::to_string(range->last) + "/" + total);
  require(again && again->first == range->first && again->last == range->last && again->total == range->total,
          "a range is read as it was written");
}

void read_listing(std::string_view xml) {
  static const std::string kPrefix = "a/";
  const auto page = parse_listing(xml, kPrefix);
  if (!page) return require(!page.error().empty(), "a refusal says why");
  for (const ListedObject& object : page->objects)
    require(object.key.starts_with(kPrefix), "an object is below the prefix");
  for (const std::string& prefix : page->prefixes)
    require(prefix.starts_with(kPrefix) && prefix.ends_with('/'), "a folder is below the prefix");
}

void read_error(std::string_view xml) {
  for (const char c : error_code_in(xml))
    require((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'), "a code is a word");
}

/// Answers every request with the same bytes.
class Answering {
 public:
  Answering() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    require(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                ::listen(listener_.get(), 16) == 0 &&
                ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
            "a server listens");
    endpoint_ = "http://127.0.0.1:" + std::to_string(::ntohs(address.sin_port));
  }
  [[nodiscard]] const std::string& endpoint() const { return endpoint_; }
  /// Until a stop; a reply ends with its connection.
  void run(std::string_view reply, const std::atomic<bool>& stop) const {
    while (!stop) {
      const UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
      if (!peer || stop) return;
      char request[4096];
      (void)!::read(peer.get(), request, sizeof request);
      (void)!::send(peer.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }
  /// Ends run().
  void wake() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    const UniqueFd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    (void)::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), size);
  }

 private:
  const UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string endpoint_;
};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// Whether a redirect in it could lead to another host.
bool leads_away(const std::string& reply) {
  return reply.find("http:") != std::string::npos || reply.find("https:") != std::string::npos ||
         reply.find("//") != std::string::npos;
}

/// Whether it may ask for a wait of seconds before the next try.
bool asks_to_wait(const std::string& reply) {
  const auto at = reply.find("retry-after");
  return at != std::string::npos && reply.find_first_of("123456789", at) < reply.find('\n', at);
}

void read_reply(std::string_view reply) {
  if (const std::string lower = lower_case(reply); leads_away(lower) || asks_to_wait(lower)) return;
  static const Answering server;
  static const auto remote = Remote::make({.s3 = {.endpoint = server.endpoint(), .anonymous = true},
                                           .attempts = 2,
                                           .backoff = std::chrono::milliseconds(1)})
                                 .value();
  std::atomic<bool> stop{false};
  std::thread thread([&] { server.run(reply, stop); });
  for (const std::string& url : {server.endpoint() + "/a/b.tar", std::string("s3://bucket/a/b.tar")}) {
    std::vector<std::uint8_t> out;
    const auto fetched = remote->fetch(url, 1 << 16, out);
    if (fetched)
      require(fetched->bytes == out.size() && out.size() <= 1 << 16, "a whole object has its size");
    else
      require(!fetched.error().message.empty(), "a refusal says why");
    if (const auto known = remote->stat(url); known && known->bytes >= 4) {
      std::vector<std::uint8_t> part(4);
      (void)remote->read(url, *known, 0, part);
    }
    (void)remote->find(url);
  }
  if (const auto listed = remote->list("s3://bucket/a/", false))
    for (const ListedObject& object : listed->objects)
      require(object.key.starts_with("a/"), "an object is below the prefix");
  stop = true;
  server.wake();
  thread.join();
}

}  // namespace
}  // namespace headrace::server::remote

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  fuzz::Input input(data, size);
  const int kind = input.take<std::uint8_t>() % 4;
  const std::string text(fuzz::text_of(input.rest()));
  void (*const reads[])(std::string_view) = {server::remote::read_content_range, server::remote::read_listing,
                                             server::remote::read_error, server::remote::read_reply};
  reads[kind](text);
  return 0;
}
