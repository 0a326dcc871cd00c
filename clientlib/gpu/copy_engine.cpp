#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "clientlib/gpu/completion.h"
#include "clientlib/gpu/device.h"
#include "clientlib/gpu/device_name.h"
#include "clientlib/gpu/pinned_mapping.h"
#include "headrace/gpu.h"

namespace headrace::gpu {
namespace {

void warn_on_stderr(std::string_view text) {
  fmt::print(stderr, "headrace: {}\n", text);
}

std::size_t total_bytes(std::span<const Transfer> transfers) {
  std::size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.bytes;
  return bytes;
}

/// Two of them, taken in turn: one is filled while the other is copied.
struct Staging {
  std::byte* memory = nullptr;
  std::size_t capacity = 0;
  std::optional<Completion> in_use;
};

}  // namespace

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) device_->free(data_);
}

struct CopyEngine::Impl {
  std::unique_ptr<Device> device;
  EngineOptions options;
  EngineStats stats;
  std::list<PinnedMapping> mappings;  // one per ring; also those whose pinning was refused
  bool refusal_reported = false;
  std::array<Staging, 2> staging;
  std::size_t next_staging = 0;
  CompletionThread completions;  // last: ends before what its entries use

  Impl(std::unique_ptr<Device> d, EngineOptions o)
      : device(std::move(d)), options(std::move(o)), completions(*device) {}

  /// The pinned mapping that the transfer reads; null: none.
  const PinnedMapping* mapping_of(const Transfer& transfer) const {
    for (const PinnedMapping& mapping : mappings)
      if (mapping.holds(transfer.source, transfer.bytes)) return &mapping;
    return nullptr;
  }

  Result<void> queue(const Transfer& transfer) {
    const PinnedMapping* mapping = mapping_of(transfer);
    std::size_t done = 0;
    while (done < transfer.bytes) {
      const std::byte* source = transfer.source + done;
      const std::size_t bytes = std::min(transfer.bytes - done, mapping->contiguous(source));
      if (auto queued = device->copy(transfer.destination + done, source, bytes); !queued) return queued;
      done += bytes;
    }
    return {};
  }

  /// A mark after what was queued; without one nobody could tell when it ends: so it is waited for here.
  Result<Mark> record() {
    auto mark = device->record();
    if (!mark) device->synchronise();
    return mark;
  }

  Result<std::byte*> take_staging(std::size_t bytes) {
    Staging& buffer = staging[next_staging];
    if (buffer.in_use) (void)buffer.in_use->wait();  // its own caller hears of an error
    buffer.in_use.reset();
    if (buffer.capacity < bytes) {
      if (buffer.memory != nullptr) device->free_staging(buffer.memory);
      buffer = {};
      auto memory = device->allocate_staging(bytes);
      if (!memory) return memory;
      buffer.memory = *memory;
      buffer.capacity = bytes;
    }
    return buffer.memory;
  }

  Result<Completion> direct(std::span<const Transfer> transfers, std::shared_ptr<const void> keep) {
    Result<void> queued;
    for (const Transfer& transfer : transfers)
      if (queued) queued = queue(transfer);
    auto mark = record();
    if (!mark) return fail(mark.error());
    ++stats.direct_copies;
    Completion completion = completions.add(*mark, std::move(keep));
    if (queued) return completion;
    (void)completion.wait();  // what was queued before the failure still reads the slot
    return fail(queued.error());
  }

  /// The lease ends when the bytes are in the staging buffer: at once, on return.
  Result<Completion> staged(std::span<const Transfer> transfers) {
    auto memory = take_staging(std::max<std::size_t>(total_bytes(transfers), 1));
    if (!memory) return fail(memory.error());
    std::byte* at = *memory;
    Result<void> queued;
    for (const Transfer& transfer : transfers) {
      std::memcpy(at, transfer.source, transfer.bytes);
      if (queued) queued = device->copy(transfer.destination, at, transfer.bytes);
      at += transfer.bytes;
    }
    auto mark = record();
    if (!mark) return fail(mark.error());
    ++stats.staged_copies;
    Completion completion = completions.add(*mark, nullptr);
    staging[next_staging].in_use = completion;
    next_staging = (next_staging + 1) % staging.size();
    if (!queued) return fail(queued.error());
    return completion;
  }

  void shut_down() {
    completions.drain();
    mappings.clear();
    for (Staging& buffer : staging)
      if (buffer.memory != nullptr) device->free_staging(buffer.memory);
  }
};

Result<std::unique_ptr<CopyEngine>> CopyEngine::open(const EngineOptions& options) {
  const auto ordinal = device_ordinal(options.device);
  if (!ordinal) return fail(ordinal.error());
  if (!*ordinal) return std::make_unique<CopyEngine>(open_host_device(), options);
  auto device = open_cuda_device(**ordinal);
  if (!device) return fail(device.error());
  return std::make_unique<CopyEngine>(std::move(*device), options);
}

CopyEngine::CopyEngine(std::unique_ptr<Device> device, EngineOptions options)
    : impl_(std::make_unique<Impl>(std::move(device), std::move(options))) {
  if (!impl_->options.warn) impl_->options.warn = warn_on_stderr;
}

CopyEngine::~CopyEngine() {
  impl_->shut_down();
}

void CopyEngine::register_mapping(std::span<std::byte> mapping, std::shared_ptr<const void> owner) {
  Impl& impl = *impl_;
  for (const PinnedMapping& known : impl.mappings)
    if (known.is(mapping, owner)) return;
  impl.completions.drain();
  impl.mappings.remove_if([](const PinnedMapping& known) { return known.orphaned(); });
  const PinnedMapping& added =
      impl.mappings.emplace_back(*impl.device, mapping, impl.options.pin_chunk, std::move(owner));
  impl.stats.pinned_bytes = 0;
  for (const PinnedMapping& known : impl.mappings)
    if (known.pinned()) impl.stats.pinned_bytes += known.size();
  if (!added.pinned() && !std::exchange(impl.refusal_reported, true))
    impl.options.warn(fmt::format(
        "the ring ({} bytes) could not be pinned for {}: {}. Batches take one more copy, through a pinned "
        "buffer (counted as staged); raise the memlock limit if that is what is short",
        mapping.size(), impl.device->name(), added.refusal()));
}

Result<DeviceBuffer> CopyEngine::allocate(std::size_t bytes) {
  auto memory = impl_->device->allocate(bytes);
  if (!memory) return fail(memory.error());
  return DeviceBuffer(*impl_->device, *memory, bytes);
}

Result<Completion> CopyEngine::copy(std::span<const Transfer> transfers, std::shared_ptr<const void> keep) {
  const auto is_pinned = [&](const Transfer& transfer) { return impl_->mapping_of(transfer) != nullptr; };
  if (std::all_of(transfers.begin(), transfers.end(), is_pinned))
    return impl_->direct(transfers, std::move(keep));
  return impl_->staged(transfers);
}

EngineStats CopyEngine::stats() const {
  return impl_->stats;
}
std::string CopyEngine::device_name() const {
  return impl_->device->name();
}

}  // namespace headrace::gpu
