// Reads the samples that a stream will need before it needs them, which hides the storage's latency: the
// order of an epoch is known. The stream announces samples (`expect`), threads of a ReadPool read them, and
// the worker that makes the row takes the result (`read`). The result is what the source would have given at
// that moment, including its errors: batches do not depend on prefetching.
//
// Each expectation stands for one `read` of that sample; a sample that is expected twice is read once and
// returned twice. Memory is bounded by samples and bytes. Sample storage circulates between ReadAhead and the
// workers, so nothing is allocated in the steady state. The pages of a memory-mapped sample are touched here,
// which reads them from the disk.
//
// Invariants [lock]
//  1. An entry is in the list that its state names; all but the spare ones are in `entries_` by their index.
//  2. A queued or read entry is expected at least once; an entry that is being read and no longer expected is
//     dropped when its read ends.
// Thread safety: any thread may call any member.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"
#include "server/io/read_pool.h"
#include "server/source/source.h"

namespace headrace::server::io {

class ReadAhead final : private ReadPool::Member {
 public:
  struct Options {
    /// Samples beyond the batches that are being filled; callers of expect() should respect it.
    std::uint64_t ahead = 256;
    /// Most samples expected at once; beyond it, the samples that were read first are dropped.
    std::uint64_t samples = 1024;
    /// Limit for samples that are read and not taken; a sample that a worker waits for is read nevertheless.
    std::uint64_t bytes = std::uint64_t{256} << 20;
    /// A read that takes longer fails in the reader.
    std::chrono::nanoseconds patience = std::chrono::minutes(5);
  };
  ReadAhead(std::shared_ptr<ReadPool> pool, std::shared_ptr<const source::Source> source,
            const Options& options);
  ~ReadAhead() override;  ///< waits for the reads in progress; drops those that have not begun
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  [[nodiscard]] std::uint64_t ahead() const { return options_.ahead; }

  enum class Urgency : std::uint8_t { kNext, kLater };
  /// Starts the pool's threads. Nothing is read ahead before that.
  void start();
  /// Announces one read of each index, in this order, before or after what is already expected. Indices are
  /// below the source's size.
  void expect(std::span<const std::uint64_t> indices, Urgency urgency);
  /// Withdraws one expected read of each index. Takes no lock while nothing is expected, as when a cache
  /// holds all samples.
  void forget(std::span<const std::uint64_t> indices);
  /// Drops all expectations.
  void clear();

  /// Whether read() would return at once for all of these: they were read, or are not expected. Otherwise the
  /// missing ones are read before all that no worker asked for, and the bell rings as each one arrives.
  bool ready(std::span<const std::uint64_t> indices);
  /// An eventfd, written when a sample that ready() asked for arrives. There is one at a time.
  void ring_when_ready(ring::UniqueFd bell);

  /// Like the source's read(), with the same errors and exceptions. Takes a prefetched sample; waits for one
  /// that is being read, up to options.patience (then kTransientIo); reads a sample itself if it was not
  /// expected or its read has not begun.
  Result<void> read(std::uint64_t index, source::Sample& out);

  struct Counts {
    std::uint64_t hits = 0;                ///< taken before a worker waited for them
    std::uint64_t waits = 0;               ///< taken after a worker had found them missing
    std::uint64_t misses = 0;              ///< not expected or not begun: read by the worker itself
    std::uint64_t dropped = 0;             ///< expected but dropped for lack of room
    std::uint64_t reads = 0, read_ns = 0;  ///< by the pool
    std::uint64_t queued = 0, reading = 0, read_samples = 0, read_bytes = 0;  ///< now
    std::uint64_t oldest_ns = 0;  ///< duration of the oldest read in progress
    std::size_t threads = 0;      ///< of the pool, started so far
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] const ReadPool& pool() const { return *pool_; }

 private:
  enum class State : std::uint8_t { kSpare, kQueued, kReading, kRead };
  struct Entry;
  using Iterator = std::list<Entry>::iterator;
  using Entries = std::unordered_map<std::uint64_t, Iterator>;
  struct Entry {
    std::uint64_t index = 0;
    State state = State::kSpare;
    bool requested = false;      ///< a worker found it missing
    std::uint32_t expected = 0;  ///< reads to come
    std::uint32_t waiting = 0;   ///< readers that wait for it now
    std::uint64_t since_ns = 0;  ///< start of the read, in state kReading
    std::uint64_t memory = 0;    ///< bytes of its storage
    source::Sample sample;
    std::optional<Error> error;
    std::exception_ptr exception;
    Entries::node_type node;  ///< kSpare: the node for `entries_`, kept to save an allocation
  };

  bool read_one(std::unique_lock<std::mutex>& lock) override;
  // [lock], as all that follow
  [[nodiscard]] bool may_begin() const;
  void finish_read(Iterator entry);
  /// In `queued_`; those before it are read in the order in which they were asked for.
  [[nodiscard]] Iterator first_unrequested();
  Iterator take_spare(std::uint64_t index);  ///< still in `spare_`, but otherwise ready to be queued
  void drop(Iterator entry);                 ///< makes it spare; no reader waits for it
  bool drop_oldest();                        ///< among the entries that are read
  void drop_all();
  void unexpect(Iterator entry);
  void ring_bell() const;
  /// False: the read did not end in time.
  bool wait_for(Iterator entry, std::unique_lock<std::mutex>& lock);
  Result<void> take(Iterator entry, source::Sample& out);

  const std::shared_ptr<ReadPool> pool_;
  const std::shared_ptr<const source::Source> source_;
  const Options options_;
  std::condition_variable read_done_;
  std::atomic<bool> expects_{false};                  ///< there are entries; written under the lock
  Entries entries_;                                   ///< [lock], as all that follow
  std::list<Entry> spare_, queued_, reading_, read_;  ///< the oldest first
  std::uint64_t held_bytes_ = 0, spare_bytes_ = 0;    ///< bytes of read entries; of spare and queued ones
  std::uint64_t mean_bytes_ = 0;                      ///< recent mean per entry
  unsigned waiting_ = 0;                              ///< readers, or the destructor
  ring::UniqueFd bell_;
  Counts counts_;
};

}  // namespace headrace::server::io
