// Reads the samples that a stream will want, before it wants them: the order of an epoch is known, so what
// storage takes to answer need not be waited for. The stream says what is coming (`expect`), threads of a
// ReadPool read it, and the worker that makes the row takes it (`read`). What is read is what the source
// would have given at that moment, its errors included: batches do not depend on it.
//
// An expectation stands for one `read` of that sample; a sample that is expected twice is read once and given
// twice. Memory is bounded by samples and bytes; samples' storage goes round between here and the workers, so
// nothing is allocated in the steady state. Bytes that a source shows in a mapped file are touched, page by
// page: it is here that they are read from the disk.
//
// Invariants [lock]
//  1. An entry is in one list, as its state says; all but the spare ones are in `entries_` by their index.
//  2. A queued or read entry is expected at least once; one that is being read and not expected any more is
//     dropped when it lands.
// Thread safety: all members, any thread.
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
    std::uint64_t ahead = 256;  ///< samples beyond the batches that are being filled; advice to who expects
    std::uint64_t samples =
        1024;  ///< expected at once, at most; then the ones that were read first are dropped
    /// Of samples that are read and not taken; what a worker waits for is read nevertheless.
    std::uint64_t bytes = std::uint64_t{256} << 20;
    /// Then a read that has not come back is the reader's error.
    std::chrono::nanoseconds patience = std::chrono::minutes(5);
  };
  ReadAhead(std::shared_ptr<ReadPool> pool, std::shared_ptr<const source::Source> source,
            const Options& options);
  ~ReadAhead() override;  ///< waits for the reads that are under way; those that have not begun are dropped
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  [[nodiscard]] std::uint64_t ahead() const { return options_.ahead; }

  enum class Urgency : std::uint8_t { kNext, kLater };
  /// Each of them will be read once, in this order: before or after what is expected already. Indices are
  /// below the source's size.
  void expect(std::span<const std::uint64_t> indices, Urgency urgency);
  /// Each of them will be read once less than was expected. Takes no lock while nothing is expected: all that
  /// comes is in a cache.
  void forget(std::span<const std::uint64_t> indices);
  /// Nothing is expected any more.
  void clear();

  /// Whether read() would not wait for any of these: they were read, or are not expected. If not so, the ones
  /// that are missing are read before all that nobody asked for, and the bell rings as each is there.
  bool ready(std::span<const std::uint64_t> indices);
  /// An eventfd. One at a time.
  void ring_when_ready(ring::UniqueFd bell);

  /// As the source's, with the same errors and exceptions. Takes what was read; waits for what is being read,
  /// for as long as options.patience (then kTransientIo); reads by itself what was not expected, or has not
  /// begun to be read.
  Result<void> read(std::uint64_t index, source::Sample& out);

  struct Counts {
    std::uint64_t hits = 0;                ///< taken before anybody waited for them
    std::uint64_t waits = 0;               ///< taken after somebody had found them missing
    std::uint64_t misses = 0;              ///< not expected, or not begun to be read: read by who wanted them
    std::uint64_t dropped = 0;             ///< expected and not taken, for want of room
    std::uint64_t reads = 0, read_ns = 0;  ///< by the pool
    std::uint64_t queued = 0, reading = 0, read_samples = 0, read_bytes = 0;  ///< now
    std::uint64_t oldest_ns = 0;  ///< how long the oldest read has been under way
    std::size_t threads = 0;      ///< of the pool, so far
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] const ReadPool& pool() const { return *pool_; }

 private:
  enum class State : std::uint8_t { kSpare, kQueued, kReading, kRead };
  struct Entry;
  using Place = std::list<Entry>::iterator;
  using Entries = std::unordered_map<std::uint64_t, Place>;
  struct Entry {
    std::uint64_t index = 0;
    State state = State::kSpare;
    bool asked = false;          ///< somebody found it missing
    std::uint32_t expected = 0;  ///< reads to come
    std::uint32_t waiting = 0;   ///< readers that wait for it now
    std::uint64_t since_ns = 0;  ///< kReading
    std::uint64_t memory = 0;    ///< that its storage takes
    source::Sample sample;
    std::optional<Error> error;
    std::exception_ptr exception;
    Entries::node_type node;  ///< kSpare: of `entries_`, kept to spare an allocation
  };

  bool read_one(std::unique_lock<std::mutex>& lock) override;
  // [lock], all that follow
  [[nodiscard]] bool may_begin() const;
  void land(Place entry);
  [[nodiscard]] Place first_not_asked();  ///< of `queued_`; those before it are read in the order of asking
  Place take_spare(std::uint64_t index);  ///< still in `spare_`, but queued for the rest
  void drop(Place entry);                 ///< to the spare ones; nobody waits for it
  bool drop_oldest();                     ///< of those that are read
  void drop_all();
  void unexpect(Place entry);
  void ring_bell() const;
  /// False: it did not come in time.
  bool wait_for(Place entry, std::unique_lock<std::mutex>& lock);
  Result<void> take(Place entry, source::Sample& out);

  const std::shared_ptr<ReadPool> pool_;
  const std::shared_ptr<const source::Source> source_;
  const Options options_;
  std::condition_variable landed_;
  std::atomic<bool> expects_{false};                  ///< there are entries; written under the lock
  Entries entries_;                                   ///< [lock], as all that follow
  std::list<Entry> spare_, queued_, reading_, read_;  ///< the oldest first
  std::uint64_t held_bytes_ = 0, spare_bytes_ = 0;    ///< memory of read entries; of spare and queued ones
  std::uint64_t mean_bytes_ = 0;                      ///< of an entry, lately
  unsigned waiting_ = 0;                              ///< readers, or the destructor
  ring::UniqueFd bell_;
  Counts counts_;
};

}  // namespace headrace::server::io
