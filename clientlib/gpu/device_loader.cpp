#include "headrace/device_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/gpu/batch_source.h"

namespace headrace::gpu {
namespace {

std::shared_ptr<const BatchLayout> layout_of(const StreamInfo& info) {
  auto layout = BatchLayout::plan(info);
  require(layout.has_value(), "DeviceLoader: the stream's fields cannot be laid out as a slot");
  return std::make_shared<const BatchLayout>(std::move(*layout));
}

}  // namespace

DeviceLoader::Source::Source(const Stream& stream, std::shared_ptr<Device> to,
                             const DeviceLoaderOptions& given, std::uint32_t most_batches)
    : options(given),
      device(std::move(to)),
      batches_per_block(most_batches),
      pool(given.allocate
               ? nullptr
               : std::make_shared<BlockPool>(device, (given.prefetch + most_batches - 1) / most_batches + 1)),
      info(stream.info()),
      world_size(stream.options().world_size),
      layout(layout_of(info)),
      position(stream.cursor()),
      engine(device, given.engine) {
  require(given.prefetch > 0, "DeviceLoaderOptions::prefetch is 0: expected 1 or more");
}

Result<DeviceBlock> DeviceLoader::Source::take_block(std::uint32_t batches) {
  constexpr std::uintptr_t kAlignment = 16;  // which the kernels need
  const std::size_t bytes = (pool ? batches_per_block : batches) * layout->bytes;
  auto block = pool ? pool->take(bytes) : options.allocate(bytes);
  if (block && block->bytes < bytes)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}': DeviceLoaderOptions::allocate returned {} bytes, expected {} or more",
                    info.name, block->bytes, bytes));
  const bool made_here = info.residence || !info.on_device.empty();
  if (block && made_here && reinterpret_cast<std::uintptr_t>(block->data) % kAlignment != 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream '{}': DeviceLoaderOptions::allocate returned memory that is not aligned "
                            "to {} bytes: its rows are computed on the device, which needs that",
                            info.name, kAlignment));
  return block;
}

Result<std::unique_ptr<DeviceLoader>> DeviceLoader::open(Stream stream, const DeviceLoaderOptions& options) {
  auto device = open_device(options.engine.device, options.engine.copy_stream);
  if (!device) return fail(device.error());
  const StreamInfo& info = stream.info();
  if (auto layout = BatchLayout::plan(info); !layout) return fail(layout.error());
  const bool resident = options.resident && info.residence;
  if (resident || !info.on_device.empty())
    if (auto ready = (*device)->prepare_rows(); !ready) return fail(ready.error());
  auto source = resident ? make_resident_batches(std::move(stream), std::move(*device), options)
                         : fetch_batches(std::move(stream), std::move(*device), options);
  if (!source) return fail(source.error());
  return std::unique_ptr<DeviceLoader>(new DeviceLoader(std::move(*source)));
}

DeviceLoader::DeviceLoader(Stream stream, std::shared_ptr<Device> device,
                           const DeviceLoaderOptions& options) {
  auto source = fetch_batches(std::move(stream), std::move(device), options);
  require(source.has_value(), "DeviceLoader: the stream has fields that the device cannot compute");
  source_ = std::move(*source);
}
DeviceLoader::DeviceLoader(std::unique_ptr<Source> source) : source_(std::move(source)) {}
DeviceLoader::~DeviceLoader() {
  if (source_->fork.forked()) (void)source_.release();  // its threads run in the parent only
}

Result<std::optional<DeviceBatch>> DeviceLoader::next(std::chrono::milliseconds timeout) {
  if (auto own = source_->fork.check("loader"); !own) return fail(own.error());
  constexpr std::chrono::hours kForever{24 * 365};  // callers pass milliseconds::max(), which would overflow
  return source_->next(std::min<std::chrono::milliseconds>(timeout, kForever));
}
Result<void> DeviceLoader::set_epoch(std::uint64_t epoch) {
  if (auto own = source_->fork.check("loader"); !own) return own;
  return source_->set_epoch(epoch);
}
Result<void> DeviceLoader::next_epoch() {
  if (auto own = source_->fork.check("loader"); !own) return own;
  return source_->begun ? source_->set_epoch(source_->position.epoch + 1) : Result<void>();
}
Result<void> DeviceLoader::load_state(const State& state) {
  if (auto own = source_->fork.check("loader"); !own) return own;
  return source_->load_state(state);
}

const StreamInfo& DeviceLoader::info() const {
  return source_->info;
}
std::uint64_t DeviceLoader::length() const {
  return source_->length();
}
std::uint64_t DeviceLoader::epoch() const {
  return source_->epoch();
}
bool DeviceLoader::begun() const {
  return source_->begun;
}
Cursor DeviceLoader::cursor() const {
  return source_->cursor();
}
State DeviceLoader::state() const {
  const StreamInfo& info = source_->info;
  return {cursor(), info.batch_size, source_->world_size, info.name, info.fingerprint};
}
void DeviceLoader::set_interrupt(std::function<bool()> interrupt) {
  source_->interrupt = std::move(interrupt);
}
std::uint32_t DeviceLoader::ready() const {
  return source_->ready();
}
std::chrono::nanoseconds DeviceLoader::waited() const {
  return source_->waited;
}
EngineStats DeviceLoader::stats() const {
  return source_->engine.stats();
}
std::string DeviceLoader::device_name() const {
  return source_->engine.device_name();
}
StreamHandle DeviceLoader::copy_stream() const {
  return source_->device->copy_stream();
}

}  // namespace headrace::gpu
