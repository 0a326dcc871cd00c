#include "clientlib/gpu/copy/completion.h"

#include <chrono>
#include <utility>

namespace headrace::gpu {

bool Completion::done() const {
  return state_->done.load(std::memory_order_acquire);  // SYNC copy-done
}

Result<void> Completion::wait(std::chrono::microseconds spin) const {
  const auto give_up = std::chrono::steady_clock::now() + spin;
  while (!done() && std::chrono::steady_clock::now() < give_up) continue;
  if (!done()) {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return done(); });
  }
  if (state_->error) return fail(*state_->error);
  return {};
}

Result<void> Completion::wait_for(std::chrono::milliseconds time) const {
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_for(lock, time, [&] { return done(); }) || !state_->error) return {};
  return fail(*state_->error);
}

CompletionThread::CompletionThread(Device& device) : device_(device), thread_([this] { run(); }) {}

CompletionThread::~CompletionThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Completion CompletionThread::add(Mark mark, std::shared_ptr<const void> keep) {
  auto state = std::make_shared<Completion::State>();
  state->mark = mark;
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back({mark, std::move(keep), state});
  }
  changed_.notify_all();
  return Completion(std::move(state));
}

void CompletionThread::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return entries_.empty(); });
}

void CompletionThread::run() {
  device_.enter_thread();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !entries_.empty(); });
    if (entries_.empty()) return;
    Entry entry = std::move(entries_.front());
    lock.unlock();
    const Result<void> copied = device_.wait(entry.mark);
    entry.keep.reset();
    {
      const std::lock_guard done(entry.state->mutex);
      if (!copied) entry.state->error = copied.error();
      entry.state->done.store(true, std::memory_order_release);  // SYNC copy-done
    }
    entry.state->changed.notify_all();
    lock.lock();
    entries_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace headrace::gpu
