#include "server/io/read_pool.h"

#include <algorithm>
#include <exception>

#include "server/log/barrier.h"
#include "server/log/log.h"

namespace headrace::server::io {
ReadPool::~ReadPool() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadPool::add(Member& member) {
  members_.push_back(&member);
}

void ReadPool::remove(Member& member) {
  std::erase(members_, &member);
}

void ReadPool::start() try {
  threads_.reserve(wanted_);
  while (threads_.size() < wanted_) threads_.emplace_back([this] { run(); });
} catch (const std::exception& error) {  // no thread, or no memory for one
  log::warn(
      "source `{}`: only {} of {} I/O threads: {}; lower io.threads, or raise the limit of "
      "processes (ulimit -u, pids.max)",
      source_, threads_.size(), wanted_, error.what());
}

bool ReadPool::notify() {
  if (idle_ > 0) {
    --idle_;
    ++notified_;
    work_.notify_one();
  }
  return !threads_.empty();
}

void ReadPool::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    try {
      if (read_one(lock)) continue;
    } catch (...) {  // from a member's bookkeeping; an exception of a read goes to its reader
      if (!lock.owns_lock()) lock.lock();
      log::thrown("an I/O thread");
    }
    ++idle_;
    work_.wait(lock, [this] { return stopping_ || notified_ > 0; });
    if (stopping_) return;
    --notified_;
  }
}

bool ReadPool::read_one(std::unique_lock<std::mutex>& lock) {
  for (std::size_t tried = 0; tried < members_.size(); ++tried) {
    next_ = (next_ + 1) % members_.size();
    if (members_[next_]->read_one(lock)) return true;
  }
  return false;
}

}  // namespace headrace::server::io
