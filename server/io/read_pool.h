// Threads that do blocking reads, so that the workers that decode do not wait for storage. A pool belongs to
// a source; the streams over that source share it, each with its own ReadAhead. Its threads start with the
// engine: if they started on first use, they would start under the engine's lock.
//
// Thread safety: members marked [lock] are called under `mutex()`, which also guards the pool's members.
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
  /// A user of the pool: one stream's ReadAhead.
  class Member {
   public:
    Member() = default;
    virtual ~Member() = default;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    /// [lock] Does one read, with the lock released meanwhile. False: no read may begin now.
    virtual bool read_one(std::unique_lock<std::mutex>& lock) = 0;
  };

  /// `source`: its name, for messages and metrics. 1 <= threads.
  ReadPool(std::string source, unsigned threads) : source_(std::move(source)), wanted_(threads) {}
  ~ReadPool();  ///< all members must have been removed
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;

  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] std::mutex& mutex() const { return mutex_; }
  void add(Member& member);     ///< [lock]
  void remove(Member& member);  ///< [lock]
  /// [lock] Starts the threads that are not running yet. If some cannot start, the pool works with fewer and
  /// logs it.
  void start();
  [[nodiscard]] std::size_t threads() const { return threads_.size(); }  ///< [lock]

  /// [lock] Wakes an idle thread, if there is one, because there is work. A thread that begins a read
  /// notifies again if there is more. False: there are no threads.
  bool notify();

 private:
  void run();
  /// [lock] Lets the next member with work do one read. False: no member has work.
  bool read_one(std::unique_lock<std::mutex>& lock);

  const std::string source_;
  const unsigned wanted_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Member*> members_;  ///< guarded by mutex_, like all members below
  std::size_t next_ = 0;          ///< index of the member that was served last
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;      ///< threads that wait and were not notified yet
  std::size_t notified_ = 0;  ///< threads that wait and were notified
  bool stopping_ = false;
};

}  // namespace headrace::server::io
