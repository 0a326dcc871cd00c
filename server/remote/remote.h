// Reads http://, https:// and s3:// URLs: sizes, byte ranges, whole objects, listings. Errors that may pass
// (no connection, a broken or slow one, 408, 429, 5xx) are retried with growing pauses; a broken reply is
// continued from where it ended. A changed object is reported as an error: bytes of two versions are never
// mixed.
//
// Errors name the URL without its secrets (url.h), and a remedy. kTransientIo: all retries failed, or a stop
// was requested. kDatasetInvalid: missing, forbidden, changed, or a reply that no file server gives.
// kBadSample: larger than allowed.
//
// Thread safety: any number of threads may call any member.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/remote/s3.h"
#include "server/remote/transfer.h"

namespace headrace::server::remote {

struct Options {
  S3Config s3;
  Transfers::Options transfers;
  /// Most connections open at once; callers that open a dataset should respect it.
  unsigned connections = 64;
  int attempts = 6;  ///< that make less than a MiB of progress
  /// Mean pause before the second attempt; it doubles before each further one.
  std::chrono::milliseconds backoff{100};
  std::uint64_t most_listed = std::uint64_t{4} << 30;  ///< memory for a listing, in bytes
  std::stop_token stop;                                ///< ends reads and pauses within a second
};

/// The properties of an object when it was first requested.
struct Stat {
  std::uint64_t bytes = 0;
  std::string tag;     ///< its ETag, else its time of last change; empty: the server gives neither
  bool ranges = true;  ///< whether parts of it can be read
};

struct Counts {
  std::uint64_t requests = 0, retries = 0, bytes = 0;
};

class Remote {
 public:
  /// kConfigInvalid: S3::from_environment()'s errors, or a tls_ca that cannot be read.
  static Result<std::shared_ptr<const Remote>> make(Options options);

  [[nodiscard]] Result<Stat> stat(const std::string& url) const;
  /// None: 404.
  [[nodiscard]] Result<std::optional<Stat>> find(const std::string& url) const;
  /// Fills `out` from byte `offset` on. The object must still match `known`.
  [[nodiscard]] Result<void> read(const std::string& url, const Stat& known, std::uint64_t offset,
                                  std::span<std::uint8_t> out) const;
  /// Reads a whole object of at most `most` bytes, and returns its properties. Allocates the size that the
  /// server announces.
  [[nodiscard]] Result<Stat> fetch(const std::string& url, std::uint64_t most,
                                   std::vector<std::uint8_t>& out) const;
  /// The objects below an s3:// URL, sorted by bytes; see S3::listing(). The page's `next` is empty.
  /// kDatasetInvalid also if they need more than Options::most_listed.
  [[nodiscard]] Result<ListedPage> list(const std::string& url, bool deep) const;

  [[nodiscard]] unsigned connections() const { return options_.connections; }
  [[nodiscard]] Counts counts() const;

 private:
  struct Fault;
  explicit Remote(Options options, S3 s3);
  [[nodiscard]] Result<Request> request(const std::string& url) const;
  [[nodiscard]] Reply get(const Request& request, const TakePart& take) const;
  /// A reply's fault, by its status or its transfer.
  [[nodiscard]] std::optional<Fault> fault_of(const Reply& reply, const std::string& url) const;
  /// Repeats the attempt until it has no fault, or one that a retry cannot fix.
  [[nodiscard]] Result<void> with_retries(const std::function<std::optional<Fault>()>& attempt) const;
  [[nodiscard]] bool pause(std::chrono::milliseconds time) const;

  const Options options_;
  const S3 s3_;
  const Transfers transfers_;
  mutable std::atomic<std::uint64_t> requests_{0}, retries_{0}, bytes_{0};
};

}  // namespace headrace::server::remote
