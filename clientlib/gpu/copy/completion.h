// One thread that waits for marks in the order in which they were recorded, and ends each lease when its copy
// has finished.
//
// Thread safety: any thread.
// Invariant: an entry's `keep` is dropped after the wait for its mark and before its Completion is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "clientlib/gpu/device/device.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

struct Completion::State {
  Mark mark = 0;
  std::mutex mutex;
  std::condition_variable changed;
  /// SYNC copy-done: stored (release) after `error`, with `mutex` locked so that no waiter misses it; loaded
  /// (acquire) by Completion::done().
  std::atomic<bool> done = false;
  std::optional<Error> error;
};

class CompletionThread {
 public:
  explicit CompletionThread(Device& device);
  ~CompletionThread();  ///< waits for all entries

  /// `keep`: keeps the copy's source alive and, unless the caller does, its destination.
  Completion add(Mark mark, std::shared_ptr<const void> keep);
  void drain();  ///< blocks until no entry is left

 private:
  struct Entry {
    Mark mark;
    std::shared_ptr<const void> keep;
    std::shared_ptr<Completion::State> state;
  };
  void run();

  Device& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // guarded by mutex_; the thread waits for the front one
  bool stopping_ = false;      // guarded by mutex_
  std::thread thread_;
};

}  // namespace headrace::gpu
