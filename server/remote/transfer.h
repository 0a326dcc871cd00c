// One HTTP request and its reply, over libcurl. Connections stay open and are reused.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::remote {

/// Keys for SigV4.
struct Keys {
  std::string id, secret, token;  ///< token: empty if there is none
};

struct Request {
  std::string url;                                               ///< as sent
  std::optional<std::pair<std::uint64_t, std::uint64_t>> range;  ///< first and last byte
  std::vector<std::string> headers;
  const Keys* keys = nullptr;  ///< null: not signed
  std::string region;          ///< the signature's region
  bool follow = true;          ///< follows redirects to http and https, never from https to http
};

struct Reply {
  int status = 0;          ///< 0: no reply
  std::string failure;     ///< why the reply is incomplete, in libcurl's words; empty: it is complete
  bool permanent = false;  ///< a retry would fail the same way: a certificate, a redirect loop
  std::optional<std::uint64_t> length;  ///< Content-Length
  bool delimited = false;               ///< truncation is detectable: the reply has a length or is chunked
  std::string etag, last_modified, content_range, bucket_region;
  std::chrono::seconds retry_after{0};
  std::string error_body;  ///< beginning of the body if the status is 300 or above
};

/// Receives a part of the body if the status is below 300; false: no more is wanted. `head`: without
/// `failure`.
using TakePart = std::function<bool(const Reply& head, std::span<const std::uint8_t> part)>;

/// Thread safety: any number of threads; each transfer has a connection of its own.
class Transfers {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout{10'000};
    /// A reply slower than 1 KB/s is given up after this long.
    std::chrono::seconds stall{20};
    std::filesystem::path tls_ca;  ///< certificates of authorities, PEM; empty: the system's
  };
  Transfers(Options options, std::stop_token stop);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers();

  /// Ends within a second once a stop is requested.
  Reply get(const Request& request, const TakePart& take) const;

 private:
  struct Connection;
  std::unique_ptr<Connection> take_connection() const;

  const Options options_;
  const std::stop_token stop_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Connection>> idle_;  ///< [mutex_]
};

}  // namespace headrace::server::remote
