#include "headrace/device_loader.h"

#include <algorithm>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/client/fork_guard.h"
#include "clientlib/client/resume.h"
#include "clientlib/gpu/batch_layout.h"
#include "clientlib/gpu/block_pool.h"
#include "clientlib/gpu/device.h"
#include "clientlib/gpu/fetcher.h"
#include "clientlib/gpu/resident/loader.h"
#include "clientlib/gpu/transform/kernels.h"

namespace headrace::gpu {
namespace {

/// Whether batches are so small that they are brought together for one copy.
bool gathers(const StreamInfo& info, const BatchLayout& layout, const DeviceLoaderOptions& options) {
  return info.on_device.empty() && layout.bytes <= options.gathered;
}

/// Batches of a block: small ones share a copy.
std::uint32_t group_of(const StreamInfo& info, const BatchLayout& layout,
                       const DeviceLoaderOptions& options) {
  if (!gathers(info, layout, options)) return 1;
  const std::size_t fit = options.gathered / std::max<std::size_t>(layout.bytes, 1);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(fit, 1, options.prefetch));
}

std::shared_ptr<const BatchLayout> layout_of(const StreamInfo& info) {
  auto layout = BatchLayout::plan(info);
  require(layout.has_value(), "a stream has fields that no ring has");
  return std::make_shared<const BatchLayout>(std::move(*layout));
}

}  // namespace

/// `position` is the next batch that next() will return; the stream is ahead of it.
struct DeviceLoader::Impl {
  client::ForkGuard fork;
  DeviceLoaderOptions options;
  std::shared_ptr<Device> device;
  std::shared_ptr<BlockPool> pool;  // null: options.allocate
  Stream stream;
  StreamInfo info;
  std::uint32_t world_size;
  std::shared_ptr<const BatchLayout> layout;
  std::uint32_t group;

  // Where the loop is.
  Cursor position;
  std::uint64_t length = 0, epoch_length = 0;
  bool begun = false;
  Cursor skip_to;       ///< of a live stream, which knows no seeking: what comes before is dropped
  bool astray = false;  ///< the stream is not where the queue and `position` are: seek before fetching

  std::function<bool()> interrupt;
  std::chrono::nanoseconds waited{0}, waited_uncommitted{0};

  CopyEngine engine;
  Fetcher fetcher;  // last: ends before what it uses

  Impl(Stream from, std::shared_ptr<Device> to, const DeviceLoaderOptions& given)
      : options(given),
        device(std::move(to)),
        pool(given.allocate ? nullptr : std::make_shared<BlockPool>(device, given.prefetch + 1)),
        stream(std::move(from)),
        info(stream.info()),
        world_size(stream.state().world_size),
        layout(layout_of(info)),
        group(group_of(info, *layout, given)),
        engine(device, given.engine),
        fetcher(stream, engine,
                {device, layout, group, gathers(info, *layout, given), given.prefetch, pool != nullptr}) {
    require(given.prefetch > 0, "DeviceLoaderOptions::prefetch is 0");
    follow_stream();
    stream.set_interrupt(
        [this] { return fetcher.fetches_here() ? fetcher.wanted_elsewhere() : interrupt && interrupt(); });
  }

  void follow_stream() {
    position = stream.cursor();
    length = stream.length();
    epoch_length = stream.epoch_length();
    if (position.batch == 0 && position.origin == 0) length = epoch_length;
    begun = false;
  }

  void begin_epoch(std::uint64_t epoch) {
    position = {epoch, 0, 0};
    length = epoch_length;
    begun = false;
  }

  Result<void> supply() {
    const std::size_t bytes = group * layout->bytes;
    while (fetcher.under_way() <= options.prefetch) {  // and the one that is asked for
      auto block = options.allocate ? options.allocate(bytes) : pool->take(bytes);
      if (!block && fetcher.under_way() > 0) return {};  // less ahead than was asked for
      if (!block) return fail(block.error());
      fetcher.supply(std::move(*block));
    }
    return {};
  }

  /// Lets the stream follow the loop, which it has run ahead of.
  template <class F>
  Result<void> seek(F change) {
    fetcher.pause();
    if (auto changed = change(stream); !changed) return changed;
    fetcher.drop_all();
    astray = false;
    follow_stream();
    return {};
  }

  Result<void> come_back() {
    if (!astray || info.live) return {};
    State state = stream.state();
    state.cursor = position;
    const bool was_begun = begun;
    auto back = seek([&](Stream& s) { return s.load_state(state); });
    begun = was_begun;
    return back;
  }

  Result<void> go_to_epoch(std::uint64_t epoch) {
    if (info.live) {
      if (Cursor{epoch, 0, 0} < position) return stream_refuses(epoch);
      skip_to = {epoch, 0, 0};
      begun = false;
      return {};
    }
    if (!astray && fetcher.drop_until({epoch, 0, 0})) {
      begin_epoch(epoch);
      return {};
    }
    if (begun &&
        epoch == position.epoch)  // the stream, which may have been sent back, need not know of `begun`
      return seek([&](Stream& s) {
        State state = s.state();
        state.cursor = {epoch, 0, 0};
        return s.load_state(state);
      });
    return seek([&](Stream& s) { return s.set_epoch(epoch); });
  }

  /// In the stream's own words.
  Result<void> stream_refuses(std::uint64_t epoch) {
    fetcher.pause();
    return stream.set_epoch(epoch);
  }

  Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout) {
    stream.commit(position, std::exchange(waited_uncommitted, {}));
    if (auto back = come_back(); !back) return fail(back.error());
    const auto asked = Fetcher::Clock::now();
    for (;;) {
      if (auto supplied = supply(); !supplied) return fail(supplied.error());
      fetcher.resume();
      auto fetched = fetcher.take(asked + timeout, interrupt);
      const auto spent = Fetcher::Clock::now() - asked;
      if (!fetched) {
        count(spent);
        return fail(ErrorCode::kTimeout, "interrupted while waiting for a batch");
      }
      if (fetched->error) {
        count(spent);
        astray = fetched->lost;
        return fail(std::move(*fetched->error));
      }
      if (!fetched->batch) {
        begin_epoch(position.epoch + 1);
        if (position <= skip_to) continue;
        count(spent);
        return std::nullopt;
      }
      position = fetched->position;
      ++position.batch;
      length = fetched->length;
      if (fetched->position < skip_to) continue;
      begun = true;
      count(spent);
      return std::move(*fetched->batch);
    }
  }

  void count(std::chrono::nanoseconds spent) {
    waited += spent;
    waited_uncommitted += spent;
  }
};

Result<std::unique_ptr<DeviceLoader>> DeviceLoader::open(Stream stream, const DeviceLoaderOptions& options) {
  auto device = open_device(options.engine.device, options.engine.copy_stream);
  if (!device) return fail(device.error());
  if (options.resident && stream.info().residence) {
    auto resident = ResidentLoader::open(std::move(stream), std::move(*device), options);
    if (!resident) return fail(resident.error());
    return std::unique_ptr<DeviceLoader>(new DeviceLoader(std::move(*resident)));
  }
  if (!stream.info().on_device.empty())
    if (auto kernels = (*device)->open_transform(); !kernels) return fail(kernels.error());
  return std::make_unique<DeviceLoader>(std::move(stream), std::move(*device), options);
}

DeviceLoader::DeviceLoader(Stream stream, std::shared_ptr<Device> device, const DeviceLoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(stream), std::move(device), options)) {}

DeviceLoader::DeviceLoader(std::unique_ptr<ResidentLoader> resident) : resident_(std::move(resident)) {}

DeviceLoader::~DeviceLoader() {
  if (resident_) {
    if (resident_->forked()) (void)resident_.release();
    return;
  }
  if (impl_->fork.forked()) (void)impl_.release();  // its threads are the parent's
}

Result<std::optional<DeviceBatch>> DeviceLoader::next(std::chrono::milliseconds timeout) {
  if (resident_) return resident_->next(timeout);
  if (auto own = impl_->fork.check("loader"); !own) return fail(own.error());
  return impl_->next(timeout);
}

const StreamInfo& DeviceLoader::info() const {
  if (resident_) return resident_->info();
  return impl_->info;
}
std::uint64_t DeviceLoader::length() const {
  if (resident_) return resident_->length();
  return impl_->length;
}
std::uint64_t DeviceLoader::epoch() const {
  if (resident_) return resident_->epoch();
  return std::max(impl_->position, impl_->skip_to).epoch;
}
bool DeviceLoader::begun() const {
  if (resident_) return resident_->begun();
  return impl_->begun;
}

Result<void> DeviceLoader::set_epoch(std::uint64_t epoch) {
  if (resident_) return resident_->set_epoch(epoch);
  Impl& my = *impl_;
  if (auto own = my.fork.check("loader"); !own) return own;
  if (my.position.batch >= my.length && epoch == my.position.epoch + 1) {
    // The epoch's end, which is due, is left out.
    if (my.fetcher.drop_until({epoch, 0, 0})) {
      my.begin_epoch(epoch);
      return {};
    }
  } else if (!my.begun && this->epoch() == epoch) {
    return {};
  }
  return my.go_to_epoch(epoch);
}

Result<void> DeviceLoader::next_epoch() {
  if (resident_) return resident_->next_epoch();
  if (auto own = impl_->fork.check("loader"); !own) return own;
  if (!impl_->begun) return {};
  return set_epoch(impl_->position.epoch + 1);
}

Cursor DeviceLoader::cursor() const {
  if (resident_) return resident_->cursor();
  const Cursor due = std::max(impl_->position, impl_->skip_to);
  return due.batch >= impl_->length ? Cursor{due.epoch + 1, 0, 0} : due;
}

State DeviceLoader::state() const {
  if (resident_) return resident_->state();
  return {cursor(), impl_->info.batch_size, impl_->world_size, impl_->info.name, impl_->info.fingerprint};
}

Result<void> DeviceLoader::load_state(const State& state) {
  if (resident_) return resident_->load_state(state);
  Impl& my = *impl_;
  if (auto own = my.fork.check("loader"); !own) return own;
  if (!my.astray && !my.info.live) {
    const auto cursor = client::resume_cursor(state, my.info, my.world_size);
    if (!cursor) return fail(cursor.error());
    if (*cursor == my.position) {
      my.begun = false;
      return {};
    }
  }
  return my.seek([&](Stream& stream) { return stream.load_state(state); });
}

void DeviceLoader::set_interrupt(std::function<bool()> interrupt) {
  if (resident_) return resident_->set_interrupt(std::move(interrupt));
  impl_->interrupt = std::move(interrupt);
}
std::uint32_t DeviceLoader::ready() const {
  if (resident_) return resident_->ready();
  return impl_->fetcher.ready() + (impl_->fetcher.running() ? 0 : impl_->stream.ready());
}
std::chrono::nanoseconds DeviceLoader::waited() const {
  if (resident_) return resident_->waited();
  return impl_->waited;
}
EngineStats DeviceLoader::stats() const {
  if (resident_) return resident_->stats();
  return impl_->engine.stats();
}
std::string DeviceLoader::device_name() const {
  if (resident_) return resident_->device_name();
  return impl_->engine.device_name();
}
StreamHandle DeviceLoader::copy_stream() const {
  if (resident_) return resident_->copy_stream();
  return impl_->device->copy_stream();
}

}  // namespace headrace::gpu
