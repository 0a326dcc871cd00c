// The CPU backend behind a script: a device that refuses, stalls or fails as a test demands.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/gpu/device/device.h"

namespace headrace::gpu {

/// The behavior of a device under test, and a record of the calls to it.
struct Script {
  int refuse_pin_after = 1'000'000;  // pins that succeed
  bool fail_copies = false;
  bool fail_marks = false;
  std::optional<std::size_t> room;  // free bytes that it reports
  std::shared_future<void> gate;    // copies finish only after it
  std::vector<std::size_t> pinned;  // sizes, in order
  std::size_t unpinned = 0, synchronized = 0;
  std::vector<std::pair<const std::byte*, std::size_t>> copies;
  std::vector<StreamHandle> held_streams, released_on;  // by hold_stream, record_on
  std::vector<Mark> held_copies, dropped;
};

/// The CPU backend behind a script.
class ScriptedDevice final : public Device {
 public:
  explicit ScriptedDevice(Script& script) : script_(script), host_(open_host_device()) {}
  [[nodiscard]] std::string name() const override { return "scripted"; }
  Result<void> pin(std::span<std::byte> memory) override {
    if (static_cast<int>(script_.pinned.size()) >= script_.refuse_pin_after)
      return fail(ErrorCode::kEnvironment, "no more memory may be locked");
    // Like some GPUs, pins only writable memory.
    for (std::size_t at = 0; at < memory.size(); at += 4096) {
      volatile std::byte& touched = memory[at];
      touched = static_cast<std::byte>(touched);
    }
    script_.pinned.push_back(memory.size());
    return {};
  }
  void unpin(std::span<std::byte>) override { ++script_.unpinned; }
  Result<std::byte*> allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  Result<std::size_t> room() override { return script_.room ? *script_.room : host_->room(); }
  void free(std::byte* memory) override { host_->free(memory); }
  Result<void> copy(std::byte* destination, const std::byte* source, std::size_t bytes) override {
    if (script_.fail_copies) return fail(ErrorCode::kInternal, "the device is gone");
    script_.copies.emplace_back(source, bytes);
    return host_->copy(destination, source, bytes);
  }
  Result<Mark> record() override {
    if (script_.fail_marks) return fail(ErrorCode::kInternal, "no event is left");
    return host_->record();
  }
  [[nodiscard]] StreamHandle copy_stream() const override { return host_->copy_stream(); }
  Result<void> hold_stream(StreamHandle stream, Mark mark) override {
    script_.held_streams.push_back(stream);
    if (script_.gate.valid()) return {};  // the consumer's stream waits, the host does not
    return host_->hold_stream(stream, mark);
  }
  Result<Mark> record_on(StreamHandle stream) override {
    script_.released_on.push_back(stream);
    return script_.released_on.size();
  }
  Result<void> hold_copies(Mark mark) override {
    script_.held_copies.push_back(mark);
    return host_->hold_copies(mark);
  }
  void drop(Mark mark) override { script_.dropped.push_back(mark); }
  void synchronize() override {
    ++script_.synchronized;
    host_->synchronize();
  }
  Result<void> prepare_rows() override { return host_->prepare_rows(); }
  std::int32_t blocks_at_once(const RowJob& job) override { return host_->blocks_at_once(job); }
  Result<void> launch(const RowJob& job) override { return host_->launch(job); }
  Result<void> wait(Mark mark) override {
    if (script_.gate.valid()) script_.gate.wait();
    return host_->wait(mark);
  }

 private:
  Script& script_;
  std::unique_ptr<Device> host_;
};

}  // namespace headrace::gpu
