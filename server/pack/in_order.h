// A bounded buffer between many threads that make items and one that takes them in order.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace headrace::server::pack {

/// Thread safety: any thread may call any member, but only one may call `take`.
///
/// 1. Numbers are claimed in order, so the item that `take` waits for is always claimed before later ones.
/// 2. A maker waits only before it claims, so every claimed item gets finished, and no thread waits for ever.
template <class T>
class InOrder {
 public:
  /// Limits of finished items that are not taken: about `most_bytes`, and `most_ahead` items.
  InOrder(std::uint64_t begin, std::uint64_t end, std::uint64_t most_bytes, std::uint64_t most_ahead)
      : claimed_(begin), taken_(begin), end_(end), most_bytes_(most_bytes), most_ahead_(most_ahead) {}

  /// The next number to make; nullopt: there is none, or `stop` was called.
  std::optional<std::uint64_t> claim() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] {
      return stopped_ || claimed_ >= end_ || claimed_ == taken_ ||
             (bytes_ < most_bytes_ && claimed_ - taken_ < most_ahead_);
    });
    if (stopped_ || claimed_ >= end_) return std::nullopt;
    return claimed_++;
  }

  void put(std::uint64_t number, std::uint64_t bytes, T thing) {
    const std::scoped_lock lock(mutex_);
    bytes_ += bytes;
    done_.emplace(number, Entry{bytes, std::move(thing)});
    if (number == taken_) next_.notify_one();
  }

  /// The next item in order; nullopt: all were taken, or `stop` was called.
  std::optional<T> take() {
    std::unique_lock lock(mutex_);
    next_.wait(lock, [this] { return stopped_ || taken_ == end_ || done_.contains(taken_); });
    if (stopped_ || taken_ == end_) return std::nullopt;
    auto entry = done_.extract(taken_++);
    bytes_ -= entry.mapped().bytes;
    room_.notify_all();
    return std::move(entry.mapped().thing);
  }

  /// Sets the end to `number`: there is nothing to make from it on.
  void end_at(std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    end_ = std::min(end_, number);
    room_.notify_all();
    next_.notify_all();
  }

  [[nodiscard]] bool all_taken() {
    const std::scoped_lock lock(mutex_);
    return taken_ == end_;
  }

  /// Ends all waiting. Items that were not taken are lost.
  void stop() {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    room_.notify_all();
    next_.notify_all();
  }

 private:
  struct Entry {
    std::uint64_t bytes;
    T thing;
  };
  std::mutex mutex_;
  std::condition_variable room_, next_;
  // Guarded by mutex_:
  std::uint64_t claimed_, taken_, end_;
  const std::uint64_t most_bytes_, most_ahead_;
  std::uint64_t bytes_ = 0;
  std::map<std::uint64_t, Entry> done_;
  bool stopped_ = false;
};

/// Runs `work` on this many threads (fewer if the system provides no more) until it returns; the destructor
/// joins them.
class ThreadGroup {
 public:
  template <class Work>
  ThreadGroup(unsigned threads, Work work) {
    for (unsigned i = 0; i < threads; ++i) try {
        threads_.emplace_back(work);
      } catch (const std::system_error&) {
        if (threads_.empty()) throw;
        return;
      }
  }

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace headrace::server::pack
