// Makes the batches of a stream in this process, without a server or ring. For notebooks, tests, and tasks on
// machines without a server (Ray). The batches are byte-identical to those of a server with the same
// configuration and data. Link headrace::maker.
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
#include <span>
#include <string>
#include <vector>

#include "headrace/client.h"
#include "headrace/error.h"
#include "headrace/stream_info.h"

namespace headrace {

struct MakerOptions {
  std::string stream = {};            ///< empty: `train`, or the only one
  std::uint32_t threads = 1;          ///< that each call uses; 1 to 1024
  std::vector<std::string> set = {};  ///< overrides of the configuration: "streams.train.batch_size=32"
  /// Called about every 50 ms by the calling thread, which then only waits for the others. If it returns
  /// true, the call fails with kTimeout: after the rows in progress, or in open() after the reads of remote
  /// sources are canceled. Python checks for signals here.
  std::function<bool()> interrupt = {};
  /// The result of describe_source() from a Maker in another process. With it this Maker opens no data, and
  /// makes rows only by rows_of(). Empty: it reads the configured source.
  std::string source = {};
  /// False: no samples are kept in memory, whatever the configuration says.
  bool caches = true;
};

class [[gnu::visibility("default")]] Maker {
 public:
  /// Reads a configuration as the server does, with the environment's HEADRACE_ variables, and opens the
  /// stream's source. Of the configuration, `server`, `ring`, `sharing` and `io.read_ahead` have no effect;
  /// caches have. The CPU also runs the transforms of `device: gpu`.
  /// kConfigInvalid; kNoSuchStream; kDatasetInvalid; kTransientIo; kInvalidArgument: the stream is fed from
  /// outside, or an option is out of range; kTimeout: interrupted.
  static Result<Maker> open(const std::string& config, const MakerOptions& options = {});
  Maker(Maker &&) noexcept;
  Maker& operator=(Maker&&) noexcept;
  ~Maker();  ///< batches stay readable

  /// The stream as a server describes it, with the same fingerprint.
  [[nodiscard]] const StreamInfo& info() const;
  /// The number of batches that each of `world_size` ranks receives in an epoch. A broadcast stream ignores
  /// world_size. kInvalidArgument: world_size is 0.
  [[nodiscard]] Result<std::uint64_t> length(std::uint32_t world_size = 1) const;

  /// The rows at positions first to first + count - 1 of an epoch, all of them valid; their batch() is 0.
  /// kInvalidArgument: the epoch does not have these positions.
  Result<BatchView> rows(std::uint64_t epoch, std::uint64_t first, std::uint32_t count) const;
  /// Batch `batch` (from 0) of rank `rank` of `world_size`, in an epoch that is read from its start. A
  /// broadcast stream ignores world_size and rank, because each client receives all batches.
  /// kInvalidArgument: there is no such batch or rank.
  ///
  /// Both: the view refers to private memory and is not a lease. kTooManyBadSamples, kBadSample,
  /// kDatasetInvalid, kTransientIo: the stream would stop in a server. kNotEnoughMemory. kTimeout:
  /// interrupted.
  Result<BatchView> batch(std::uint64_t epoch, std::uint64_t batch, std::uint32_t world_size = 1,
                          std::uint32_t rank = 0) const;

  /// The next three are for rows that a process without access to the data makes: a Maker here reads their
  /// samples, a Maker there, opened with MakerOptions::source, makes the rows. Its fingerprint is this one's
  /// if configuration and version are the same.
  ///
  /// Describes the source for MakerOptions::source of the other Maker. kInvalidArgument: the stream mixes
  /// rows
  /// (`mix`), or has ragged fields.
  [[nodiscard]] Result<std::string> describe_source() const;
  /// The samples of rows first to first + count - 1 of an epoch, as the source stores them. Errors: those of
  /// rows(), except those of bad samples.
  [[nodiscard]] Result<std::vector<std::uint8_t>> samples(std::uint64_t epoch, std::uint64_t first,
                                                          std::uint32_t count) const;
  /// The rows of which the samples are. They equal those of rows() there, except that a row whose sample is
  /// bad has unspecified values: it is marked as replaced, but the replacement's samples are not here.
  /// `samples` must not change during the call. Such calls run one after another. kInvalidArgument: they are
  /// those of other rows.
  Result<BatchView> rows_of(std::span<const std::uint8_t> samples, std::uint64_t epoch, std::uint64_t first,
                            std::uint32_t count) const;

 private:
  struct Impl;
  explicit Maker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
