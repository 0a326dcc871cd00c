#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "clientlib/client/fork_guard.h"
#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/host/host_rows.h"
#include "clientlib/gpu/rows/job.h"
#include "clientlib/ring/segment.h"

namespace headrace::gpu {
namespace {

constexpr std::size_t kAlignment = 4096;

/// The copy stream: a thread that runs queued work in order.
class CopyQueue {
 public:
  CopyQueue() : thread_([this] { run(); }) {}
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;
  ~CopyQueue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      ++queued_;
    }
    changed_.notify_all();
  }
  std::uint64_t queued() {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  void wait(std::uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      next();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_, as are the next three
  std::uint64_t queued_ = 0;                 // copies and kernels queued so far
  std::uint64_t done_ = 0;                   // copies and kernels finished so far
  bool stopping_ = false;
  std::thread thread_;
};

/// The CPU backend. Its "device" memory is host memory. A mark is the number of copies and kernels queued
/// before it.
class HostDevice final : public Device {
 public:
  HostDevice() = default;
  ~HostDevice() override {
    if (fork_.forked()) (void)queue_.release();  // its thread runs in the parent only
  }

  [[nodiscard]] std::string name() const override { return "host"; }

  Result<void> pin(std::span<std::byte>) override { return {}; }
  void unpin(std::span<std::byte>) override {}

  Result<std::byte*> allocate(std::size_t bytes) override {
    const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
    if (memory == nullptr && whole > 0)
      return fail(ErrorCode::kNotEnoughMemory,
                  "device \"host\" cannot allocate " + std::to_string(whole) + " bytes of host memory");
    return memory;
  }
  Result<std::size_t> room() override { return ring::memory_headroom().bytes; }
  void free(std::byte* memory) override { std::free(memory); }

  Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    queue_->add([=] { std::memcpy(destination, source, bytes); });
    return {};
  }
  Result<Mark> record() override { return queue_->queued(); }
  Result<void> wait(Mark mark) override {
    queue_->wait(mark);
    return {};
  }
  [[nodiscard]] StreamHandle copy_stream() const override { return 0; }
  Result<void> hold_stream(StreamHandle, Mark mark) override { return wait(mark); }
  Result<Mark> record_on(StreamHandle) override { return Mark{0}; }
  Result<void> hold_copies(Mark) override { return {}; }
  void drop(Mark) override {}
  void synchronize() override { queue_->wait(queue_->queued()); }
  Result<void> prepare_rows() override { return {}; }
  std::int32_t blocks_at_once(const RowJob&) override { return 1; }
  Result<void> launch(const RowJob& job) override {
    queue_->add([job] { run_on_host(job); });
    return {};
  }

 private:
  client::ForkGuard fork_;
  std::unique_ptr<CopyQueue> queue_ = std::make_unique<CopyQueue>();
};

}  // namespace

std::unique_ptr<Device> open_host_device() {
  return std::make_unique<HostDevice>();
}

}  // namespace headrace::gpu
