// The batches of a stream, made in this process: no server, no ring, no waiting. For notebooks, tests, and
// tasks on machines that have no server (Ray). The bytes are those that a server with the same configuration
// and data hands out. Link headrace::maker.
//
//   auto maker = or_throw(headrace::Maker::open("train.yaml", {.stream = "train", .threads = 4}));
//   headrace::BatchView batch = or_throw(maker.batch(0, 5, 8, 3));  // epoch 0, batch 5 of rank 3 of 8
//   headrace::BatchView rows = or_throw(maker.rows(0, 100, 32));    // positions 100 to 131 of the epoch
//
// Thread safety: any thread may call any member; calls run beside one another, each with its own threads. No
// thread exists between calls, so a forked child may use its parent's Maker, if no call was running at the
// fork. Sources that are mapped install a handler of SIGBUS, which passes on other faults; remote sources
// ignore SIGPIPE unless the program handles it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/client.h"
#include "headrace/error.h"
#include "headrace/stream_info.h"

namespace headrace {

struct MakerOptions {
  std::string stream = {};            ///< empty: `train`, or the only one
  std::uint32_t threads = 1;          ///< of each call; 1 to 1024
  std::vector<std::string> set = {};  ///< overrides of the configuration: "streams.train.batch_size=32"
  /// Called about every 50 ms by the calling thread, which then only waits for the others. If it returns
  /// true, the call fails with kTimeout as soon as the rows in work are made, and open() as soon as it has
  /// ended the reads of remote sources (Python: signals).
  std::function<bool()> interrupt = {};
};

class [[gnu::visibility("default")]] Maker {
 public:
  /// Reads a configuration as the server does, with the environment's HEADRACE_ variables, and opens the
  /// stream's source. Of the configuration, `server`, `ring`, `sharing` and `io.read_ahead` have no effect;
  /// caches have. Rows that a device would finish (`device: gpu`) are finished here.
  /// kConfigInvalid; kNoSuchStream; kDatasetInvalid; kTransientIo; kInvalidArgument: the stream is fed from
  /// outside, or an option is out of range; kTimeout: interrupted.
  static Result<Maker> open(const std::string& config, const MakerOptions& options = {});
  Maker(Maker &&) noexcept;
  Maker& operator=(Maker&&) noexcept;
  ~Maker();  ///< batches stay readable

  /// As the server describes the stream, with the same fingerprint.
  [[nodiscard]] const StreamInfo& info() const;
  /// Batches of an epoch for each of `world_size` ranks, which a broadcast stream ignores. kInvalidArgument:
  /// world_size is 0.
  [[nodiscard]] Result<std::uint64_t> length(std::uint32_t world_size = 1) const;

  /// The rows of positions first .. first + count - 1 of an epoch, all of them valid; their batch() is 0.
  /// kInvalidArgument: the epoch does not have these positions.
  Result<BatchView> rows(std::uint64_t epoch, std::uint64_t first, std::uint32_t count) const;
  /// What rank `rank` of `world_size` receives as its batch `batch` of an epoch that begins at its start. A
  /// broadcast stream ignores world_size and rank, because each client receives all batches.
  /// kInvalidArgument: there is no such batch or rank.
  ///
  /// Both: the view is private memory, and is not a lease. kTooManyBadSamples, kBadSample, kDatasetInvalid,
  /// kTransientIo: what would stop the stream in a server; kNotEnoughMemory; kTimeout: interrupted.
  Result<BatchView> batch(std::uint64_t epoch, std::uint64_t batch, std::uint32_t world_size = 1,
                          std::uint32_t rank = 0) const;

 private:
  struct Impl;
  explicit Maker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
