#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <list>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/gpu/copy/completion.h"
#include "clientlib/gpu/copy/pinned_mapping.h"
#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/device/device_name.h"
#include "headrace/gpu.h"

namespace headrace::gpu {
namespace {

void warn_on_stderr(std::string_view text) {
  fmt::print(stderr, "headrace: {}\n", text);
}

/// The largest gap between two transfers that is cheaper to copy than to skip by starting another copy.
constexpr std::size_t kGap = std::size_t{16} << 10;

std::vector<Transfer> by_destination(std::span<const Transfer> transfers) {
  std::vector<Transfer> sorted(transfers.begin(), transfers.end());
  std::ranges::sort(sorted, {}, &Transfer::destination);
  return sorted;
}

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
  struct Counters {
    std::atomic<std::uint64_t> direct = 0, staged = 0, pinned_bytes = 0;
  };

  std::shared_ptr<Device> device;
  EngineOptions options;
  Counters counters;
  std::list<PinnedMapping> mappings;  // one per ring, including those whose pinning failed
  bool refusal_reported = false;
  CompletionThread completions;  // last: destroyed before the members that its entries use

  Impl(std::shared_ptr<Device> d, EngineOptions o)
      : device(std::move(d)), options(std::move(o)), completions(device) {}

  /// The registered mapping that holds the transfer's source; null: none does.
  const PinnedMapping* mapping_of(const Transfer& transfer) const {
    for (const PinnedMapping& mapping : mappings)
      if (mapping.holds(transfer.source, transfer.bytes)) return &mapping;
    return nullptr;
  }

  bool pinned(std::span<const Transfer> transfers) const {
    return std::ranges::all_of(transfers, [&](const Transfer& t) {
      const PinnedMapping* mapping = mapping_of(t);
      return mapping != nullptr && mapping->pins(t.source, t.bytes);
    });
  }

  /// Joins transfers from the same mapping if their order and distances are equal in source and destination,
  /// such as the fields of a slot. `sorted`: by_destination().
  std::vector<Transfer> joined(std::span<const Transfer> sorted) const {
    std::vector<Transfer> out;
    for (const Transfer& next : sorted) {
      if (next.bytes == 0) continue;
      const PinnedMapping* mapping = mapping_of(next);
      if (!out.empty() && mapping != nullptr && mapping == mapping_of(out.back())) {
        Transfer& last = out.back();
        const auto ahead = next.destination - last.destination;
        if (next.source - last.source == ahead && static_cast<std::size_t>(ahead) <= last.bytes + kGap) {
          last.bytes = static_cast<std::size_t>(ahead) + next.bytes;
          continue;
        }
      }
      out.push_back(next);
    }
    return out;
  }

  Result<void> queue(const Transfer& transfer) {
    const PinnedMapping* mapping = mapping_of(transfer);
    std::size_t done = 0;
    while (done < transfer.bytes) {
      const std::byte* source = transfer.source + done;
      std::size_t bytes = transfer.bytes - done;
      if (mapping != nullptr) bytes = std::min(bytes, mapping->contiguous(source));
      if (auto queued = device->copy(transfer.destination + done, source, bytes); !queued) return queued;
      done += bytes;
    }
    return {};
  }

  /// A mark after the queued work. If it cannot be recorded, waits for that work here: nothing else could.
  Result<Mark> record() {
    auto mark = device->record();
    if (!mark) device->synchronize();
    return mark;
  }

  Result<Completion> start(std::span<const Transfer> transfers, std::shared_ptr<const void> keep) {
    Result<void> queued;
    for (const Transfer& transfer : transfers)
      if (queued) queued = queue(transfer);
    auto mark = record();
    if (!mark) return fail(mark.error());
    ++(pinned(transfers) ? counters.direct : counters.staged);
    Completion completion = completions.add(*mark, std::move(keep));
    if (queued) return completion;
    (void)completion.wait({});  // copies that were queued before the failure still read the slot
    return fail(queued.error());
  }

  void count_pinned() {
    std::uint64_t pinned = 0;
    for (const PinnedMapping& known : mappings) pinned += known.pinned_bytes();
    counters.pinned_bytes = pinned;
  }

  void shut_down() {
    completions.drain();
    mappings.clear();
  }
};

Result<std::unique_ptr<Device>> open_device(std::string_view name, StreamHandle copy_stream) {
  const auto ordinal = device_ordinal(name);
  if (!ordinal) return fail(ordinal.error());
  if (!*ordinal) return open_host_device();
  return open_cuda_device(**ordinal, copy_stream);
}

Result<std::unique_ptr<CopyEngine>> CopyEngine::open(const EngineOptions& options) {
  auto device = open_device(options.device, options.copy_stream);
  if (!device) return fail(device.error());
  return std::make_unique<CopyEngine>(std::move(*device), options);
}

CopyEngine::CopyEngine(std::shared_ptr<Device> device, EngineOptions options)
    : impl_(std::make_unique<Impl>(std::move(device), std::move(options))) {
  if (!impl_->options.warn) impl_->options.warn = warn_on_stderr;
}

CopyEngine::~CopyEngine() {
  impl_->shut_down();
}

void CopyEngine::register_mapping(std::span<std::byte> mapping, std::shared_ptr<const void> owner) {
  Impl& impl = *impl_;
  const auto known = std::ranges::find_if(
      impl.mappings, [&](const PinnedMapping& other) { return other.is(mapping, owner); });
  if (known != impl.mappings.end() && known->size() >= mapping.size()) return;
  if (known != impl.mappings.end()) {
    known->grow(mapping.size());
  } else {
    release_orphans();
    impl.mappings.emplace_back(*impl.device, mapping, impl.options.pin_chunk, std::move(owner));
  }
  const PinnedMapping& pinned = known != impl.mappings.end() ? *known : impl.mappings.back();
  impl.count_pinned();
  if (!pinned.refusal().empty() && !std::exchange(impl.refusal_reported, true))
    impl.options.warn(fmt::format(
        "cannot pin {} of the ring's {} bytes for {}: {}; batches there are copied once more, through the "
        "driver's own pinned buffers (counted in headrace_client_staged_copies_total). If the memlock limit "
        "is "
        "too low, raise it; if the GPU cannot pin read-only memory, set ring.data_access: read_write",
        mapping.size() - pinned.pinned_bytes(), mapping.size(), impl.device->name(), pinned.refusal()));
}

void CopyEngine::release_orphans() {
  impl_->completions.drain();
  impl_->mappings.remove_if([](const PinnedMapping& known) { return known.orphaned(); });
  impl_->count_pinned();
}

Result<DeviceBuffer> CopyEngine::allocate(std::size_t bytes) {
  auto memory = impl_->device->allocate(bytes);
  if (!memory) return fail(memory.error());
  return DeviceBuffer(*impl_->device, *memory, bytes);
}

Result<Completion> CopyEngine::copy(std::span<const Transfer> transfers, std::shared_ptr<const void> keep) {
  return impl_->start(transfers, std::move(keep));
}

Result<Completion> CopyEngine::copy_into(const DeviceBlock& block, std::span<const Transfer> transfers,
                                         std::shared_ptr<const void> keep) {
  for (const Transfer& transfer : transfers)
    require(transfer.destination >= block.data &&
                transfer.destination + transfer.bytes <= block.data + block.bytes,
            "CopyEngine::copy_into: a transfer ends outside the block");
  // A pair's second member is destroyed first: the lease, before a block whose owner may wait for Python.
  using Both = std::pair<std::shared_ptr<void>, std::shared_ptr<const void>>;
  return impl_->start(impl_->joined(by_destination(transfers)),
                      std::make_shared<Both>(block.owner, std::move(keep)));
}

Result<Completion> CopyEngine::queued(std::shared_ptr<const void> keep) {
  auto mark = impl_->record();
  if (!mark) return fail(mark.error());
  return impl_->completions.add(*mark, std::move(keep));
}

EngineStats CopyEngine::stats() const {
  const Impl::Counters& counters = impl_->counters;
  return {counters.direct, counters.staged, counters.pinned_bytes};
}
std::string CopyEngine::device_name() const {
  return impl_->device->name();
}

}  // namespace headrace::gpu
