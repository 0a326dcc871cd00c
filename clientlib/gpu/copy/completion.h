// Ends copies in the order in which they were queued: waits for a copy's mark, drops its lease, and wakes who
// waits for it. A thread does this, or a caller of Completion::wait(), which saves waking that thread.
//
// Thread safety: any thread.
// Invariant: an entry's `keep` is dropped after the wait for its mark and before its Completion is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "clientlib/gpu/device/device.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

/// The copies that have not ended. Completions share it, because they may outlive the engine.
struct CopiesUnderWay {
  struct Entry {
    Mark mark;
    std::shared_ptr<const void> keep;
    std::shared_ptr<Completion::State> state;
  };

  explicit CopiesUnderWay(std::shared_ptr<Device> of) : device(std::move(of)) {}
  /// Takes the first entry out of the queue; the caller must end() it. REQUIRES: `mutex` is locked.
  Entry take();
  void end(Entry entry);  ///< waits for the entry's mark

  const std::shared_ptr<Device> device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> queue;      // guarded by mutex, as are the next two
  std::size_t being_ended = 0;  // entries between take() and the end of end()
  bool stopping = false;
};

struct Completion::State {
  std::shared_ptr<CopiesUnderWay> copies;
  std::mutex mutex;
  std::condition_variable changed;
  /// SYNC copy-done: stored (release) after `error`, with `mutex` locked so that no waiter misses it; loaded
  /// (acquire) by Completion::done().
  std::atomic<bool> done = false;
  Mark mark = 0;
  std::optional<Error> error;
};

class CompletionThread {
 public:
  explicit CompletionThread(std::shared_ptr<Device> device);
  ~CompletionThread();  ///< waits for all entries

  /// `keep`: keeps the copy's source alive and, unless the caller does, its destination.
  Completion add(Mark mark, std::shared_ptr<const void> keep);
  void drain();  ///< blocks until no entry is left

 private:
  void run();

  const std::shared_ptr<CopiesUnderWay> copies_;
  std::thread thread_;
};

}  // namespace headrace::gpu
