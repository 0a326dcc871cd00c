// Threads that wait for storage, so that those that decode need not. A pool belongs to a source and is shared
// by the streams over it, each of which has a ReadAhead of its own.
// Threads are made when they are first needed.
//
// Thread safety: members marked [lock] are called under `mutex()`, which is the pool's members' lock, too.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace headrace::server::io {

class ReadPool {
 public:
  /// Somebody with reads to do.
  class Member {
   public:
    Member() = default;
    virtual ~Member() = default;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    /// [lock] Does one read, the lock given up meanwhile. False: there is none that may begin now.
    virtual bool read_one(std::unique_lock<std::mutex>& lock) = 0;
  };

  /// `source`: its name, for messages and metrics. 1 <= most.
  ReadPool(std::string source, unsigned most) : source_(std::move(source)), most_(most) {
    threads_.reserve(most);
  }
  ~ReadPool();  ///< all members must have left
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::mutex& mutex() const { return mutex_; }
  void enter(Member& member);                                            ///< [lock]
  void leave(Member& member);                                            ///< [lock]
  [[nodiscard]] std::size_t threads() const { return threads_.size(); }  ///< [lock] made so far

  /// [lock] There is work: wakes an idle thread, or makes one. Who begins a read calls again if there is
  /// more. False: there is no thread, and none can be made.
  bool call();

 private:
  void run();
  bool turn(
      std::unique_lock<std::mutex>& lock);  ///< [lock] one read of whoever is next. False: there is none

  const std::string source_;
  const unsigned most_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Member*> members_;  ///< [lock], as all that follow
  std::size_t next_ = 0;          ///< whose turn it is
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;           ///< threads that wait and were not called yet
  std::size_t called_ = 0;         ///< and those that were
  bool short_of_threads_ = false;  ///< it was said
  bool stopping_ = false;
};

}  // namespace headrace::server::io
