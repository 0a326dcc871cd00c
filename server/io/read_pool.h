// Threads that wait for storage, so that those that decode need not. A pool belongs to a source and is shared
// by the streams over it, each of which has a ReadAhead of its own.
//
// All threads start when the first stream enters. Started when they are first needed, they would start under
// the engine's lock.
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

  /// `source`: its name, for messages and metrics. 1 <= threads.
  ReadPool(std::string source, unsigned threads) : source_(std::move(source)), wanted_(threads) {}
  ~ReadPool();  ///< all members must have left
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::mutex& mutex() const { return mutex_; }
  void enter(Member& member);  ///< [lock] the first one starts the threads
  void leave(Member& member);  ///< [lock]
  [[nodiscard]] std::size_t threads() const { return threads_.size(); }  ///< [lock]

  /// [lock] There is work: wakes an idle thread, if there is one. A thread that begins a read calls again if
  /// there is more. False: there are no threads.
  bool call();

 private:
  void start_threads();
  void run();
  bool read_one(
      std::unique_lock<std::mutex>& lock);  ///< [lock] for the next member. False: there is nothing to read

  const std::string source_;
  const unsigned wanted_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Member*> members_;  ///< [lock], as all that follow
  std::size_t next_ = 0;          ///< the member that was served last
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;    ///< threads that wait and were not called yet
  std::size_t called_ = 0;  ///< and those that were
  bool stopping_ = false;
};

}  // namespace headrace::server::io
