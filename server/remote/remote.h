// What lies behind http://, https:// and s3:// URLs: sizes, ranges of bytes, whole objects, listings. Errors
// that may pass (no connection, a cut or slow one, 408, 429, 5xx) are met by further attempts, farther and
// farther apart; a cut reply is gone on with from where it ended. An object that is another one than it was
// is an error by name: bytes of two of them never come together.
//
// Errors name the URL without what is secret in it (url.h), and what to do. kTransientIo: what further
// attempts did not heal, or a stop was requested. kDatasetInvalid: not there, barred, changed, not what a
// server of files would answer. kBadSample: larger than allowed.
//
// Thread safety: all members, any number of threads.
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
  unsigned connections = 64;  ///< that may be open at once; advice to who opens a dataset
  int attempts = 6;           ///< without a MiB of progress
  std::chrono::milliseconds backoff{
      100};              ///< before the second attempt, about; twice as long before each next
  std::stop_token stop;  ///< ends reads and pauses within a second
};

/// What an object was when it was looked at.
struct Stat {
  std::uint64_t bytes = 0;
  std::string tag;     ///< its ETag, else the time of its last change; empty: the server gives neither
  bool ranges = true;  ///< parts of it can be read
};

struct Counts {
  std::uint64_t requests = 0, retries = 0, bytes = 0;
};

class Remote {
 public:
  /// kConfigInvalid: S3::from_environment()'s errors, a tls_ca that cannot be read.
  static Result<std::shared_ptr<const Remote>> make(Options options);

  [[nodiscard]] Result<Stat> stat(const std::string& url) const;
  /// None: 404.
  [[nodiscard]] Result<std::optional<Stat>> find(const std::string& url) const;
  /// Fills `out` from byte `offset` on, of an object that still is as `known` says.
  [[nodiscard]] Result<void> read(const std::string& url, const Stat& known, std::uint64_t offset,
                                  std::span<std::uint8_t> out) const;
  /// All of an object, of at most so many bytes, and what it is. Memory is taken for as many
  /// as the server announces.
  [[nodiscard]] Result<Stat> fetch(const std::string& url, std::uint64_t most,
                                   std::vector<std::uint8_t>& out) const;
  /// Of an s3:// URL: what is below it, sorted by bytes; see S3::listing(). `next` of the page is empty.
  [[nodiscard]] Result<ListedPage> list(const std::string& url, bool deep) const;

  [[nodiscard]] unsigned connections() const { return options_.connections; }
  [[nodiscard]] Counts counts() const;

 private:
  struct Fault;
  explicit Remote(Options options, S3 s3);
  [[nodiscard]] Result<Request> request(const std::string& url) const;
  [[nodiscard]] Reply get(const Request& request, const TakePart& take) const;
  /// What is wrong with a reply by its status, or with its way here.
  [[nodiscard]] std::optional<Fault> fault_of(const Reply& reply, const std::string& url) const;
  /// Until an attempt has no fault, or one that lasts.
  [[nodiscard]] Result<void> persist(const std::function<std::optional<Fault>()>& attempt) const;
  [[nodiscard]] bool pause(std::chrono::milliseconds time) const;

  const Options options_;
  const S3 s3_;
  const Transfers transfers_;
  mutable std::atomic<std::uint64_t> requests_{0}, retries_{0}, bytes_{0};
};

}  // namespace headrace::server::remote
