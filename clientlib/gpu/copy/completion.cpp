#include "clientlib/gpu/copy/completion.h"

#include <chrono>
#include <utility>

namespace headrace::gpu {

CopiesUnderWay::Entry CopiesUnderWay::take() {
  Entry entry = std::move(queue.front());
  queue.pop_front();
  ++being_ended;
  return entry;
}

void CopiesUnderWay::end(Entry entry) {
  const Result<void> copied = device->wait(entry.mark);
  entry.keep.reset();
  {
    const std::lock_guard done(entry.state->mutex);
    if (!copied) entry.state->error = copied.error();
    entry.state->done.store(true, std::memory_order_release);  // SYNC copy-done
  }
  entry.state->changed.notify_all();
  {
    const std::lock_guard lock(mutex);
    --being_ended;
  }
  changed.notify_all();
}

bool Completion::done() const {
  return state_->done.load(std::memory_order_acquire);  // SYNC copy-done
}

Result<void> Completion::wait(std::chrono::microseconds spin) const {
  if (spin.count() > 0 && !done()) {
    CopiesUnderWay& copies = *state_->copies;
    std::unique_lock lock(copies.mutex);
    if (!copies.queue.empty() && copies.queue.front().state == state_) {
      auto entry = copies.take();
      lock.unlock();
      copies.end(std::move(entry));
    }
  }
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

CompletionThread::CompletionThread(std::shared_ptr<Device> device)
    : copies_(std::make_shared<CopiesUnderWay>(std::move(device))), thread_([this] { run(); }) {}

CompletionThread::~CompletionThread() {
  {
    const std::lock_guard lock(copies_->mutex);
    copies_->stopping = true;
  }
  copies_->changed.notify_all();
  thread_.join();
  drain();
}

Completion CompletionThread::add(Mark mark, std::shared_ptr<const void> keep) {
  auto state = std::make_shared<Completion::State>();
  state->copies = copies_;
  state->mark = mark;
  {
    const std::lock_guard lock(copies_->mutex);
    copies_->queue.push_back({mark, std::move(keep), state});
  }
  copies_->changed.notify_all();
  return Completion(std::move(state));
}

void CompletionThread::drain() {
  std::unique_lock lock(copies_->mutex);
  copies_->changed.wait(lock, [&] { return copies_->queue.empty() && copies_->being_ended == 0; });
}

void CompletionThread::run() {
  CopiesUnderWay& copies = *copies_;
  copies.device->enter_thread();
  std::unique_lock lock(copies.mutex);
  while (true) {
    copies.changed.wait(lock, [&] { return copies.stopping || !copies.queue.empty(); });
    if (copies.queue.empty()) return;
    auto entry = copies.take();
    lock.unlock();
    copies.end(std::move(entry));
    lock.lock();
  }
}

}  // namespace headrace::gpu
