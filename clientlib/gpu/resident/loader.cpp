#include "clientlib/gpu/resident/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/client/resume.h"
#include "clientlib/gpu/device_batch.h"
#include "clientlib/gpu/device_name.h"

namespace headrace::gpu {
namespace {

using Clock = std::chrono::steady_clock;

/// A launch and what is around it cost a trainer's thread some microseconds, whatever it makes.
constexpr std::size_t kLaunchBytes = std::size_t{8} << 20;
constexpr std::uint32_t kLaunchBatches = 8;
/// Who looks at a loop that stands still should read why.
constexpr std::chrono::seconds kQuiet{3};

std::uint32_t group_of(const BatchLayout& layout) {
  const std::size_t fit = kLaunchBytes / std::max<std::size_t>(layout.bytes, 1);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(fit, 1, kLaunchBatches));
}

/// What the server would say of a batch's rows.
struct Rows {
  draws::Feistel order;
  bool shuffled;
  BatchRows positions;
  SampleIndices indices;

  std::vector<RowInfo> operator()() const {
    std::vector<RowInfo> out;
    out.reserve(positions.rows);
    for (std::uint32_t i = 0; i < positions.rows; ++i) {
      const std::uint64_t position = (positions.first + i) % order.n;
      const std::uint64_t sample = shuffled ? draws::permuted(order, position) : position;
      out.push_back({indices->empty() ? sample : (*indices)[sample], i < positions.valid, false});
    }
    return out;
  }
};

}  // namespace

ResidentLoader::ResidentLoader(const Stream& stream, std::shared_ptr<Device> device,
                               const DeviceLoaderOptions& options, std::shared_ptr<const BatchLayout> layout,
                               std::unique_ptr<GatherKernel> kernel)
    : options_(options),
      info_(stream.info()),
      rank_(stream.options().rank),
      world_size_(stream.options().world_size),
      plan_(info_.samples, info_.batch_size, world_size_, info_.last),
      device_(std::move(device)),
      layout_(std::move(layout)),
      group_(group_of(*layout_)),
      pool_(options.allocate ? nullptr : std::make_shared<BlockPool>(device_, options.prefetch + 1)),
      kernel_(std::move(kernel)),
      position_(stream.cursor()),
      engine_(device_, options.engine) {}

ResidentLoader::~ResidentLoader() {
  queue_.clear();
  // Launches read the set.
  device_->synchronise();
}

Result<std::unique_ptr<ResidentLoader>> ResidentLoader::open(Stream stream, std::shared_ptr<Device> device,
                                                             const DeviceLoaderOptions& options) {
  require(options.prefetch > 0, "DeviceLoaderOptions::prefetch is 0");
  const StreamInfo info = stream.info();
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("stream '{}': {}", info.name, why));
  };
  if (stream.options().resume_from_server)
    return refuse(
        "its set is resident on the device (`residence: gpu`), and the server hears nothing of the batches "
        "made there: resume by a saved state (Python: state_dict()) instead of the server's memory");
  if (info.samples == 0 || info.batch_size == 0) return refuse("it has no samples or no rows");
  if (stream.cursor().origin > info.samples)
    return fail(ErrorCode::kBadMessage, fmt::format("stream '{}': the server begins at sample {} of {}",
                                                    info.name, stream.cursor().origin, info.samples));
  auto layout = BatchLayout::plan(info.fields, info.batch_size);
  if (!layout) return fail(layout.error());
  auto ordinal = device_ordinal(options.engine.device);
  if (!ordinal) return fail(ordinal.error());
  auto kernel = open_gather(*ordinal);
  if (!kernel) return fail(kernel.error());
  std::unique_ptr<ResidentLoader> loader(
      new ResidentLoader(stream, std::move(device), options,
                         std::make_shared<const BatchLayout>(std::move(*layout)), std::move(*kernel)));
  const std::size_t ahead = std::size_t{options.prefetch} + 1 + loader->group_;
  auto set = ResidentSet::allocate(stream, *loader->layout_, loader->engine_, *loader->device_,
                                   ahead * loader->layout_->bytes);
  if (!set) return fail(set.error());
  loader->set_.emplace(std::move(*set));
  if (info.delivery == Delivery::kShard) loader->place_.emplace(std::move(stream));
  return loader;
}

Result<void> ResidentLoader::upload(std::chrono::milliseconds timeout) {
  if (set_->complete()) return {};
  auto told = Clock::now();
  return set_->upload(timeout, interrupt_, [&](std::uint64_t samples) {
    if (options_.uploading) return options_.uploading(samples, info_.samples);
    if (Clock::now() - told < kQuiet) return;
    told = Clock::now();
    fmt::print(stderr, "headrace: stream '{}': {} of {} samples are on {}, of {:.1f} MB\n", info_.name,
               samples, info_.samples, device_name(), static_cast<double>(set_->bytes()) / 1e6);
  });
}

Result<DeviceBlock> ResidentLoader::take_block() {
  const std::size_t bytes = group_ * layout_->bytes;
  auto block = options_.allocate ? options_.allocate(bytes) : pool_->take(bytes);
  if (!block) return block;
  if (reinterpret_cast<std::uintptr_t>(block->data) % 16 != 0)
    return fail(ErrorCode::kInvalidArgument,
                "DeviceLoaderOptions::allocate gave memory that is not aligned to 16 bytes");
  if (pool_)
    if (auto held = BlockPool::hold_copies(*block); !held) return fail(held.error());
  return block;
}

Result<void> ResidentLoader::launch(const Cursor& first) {
  const std::uint64_t left = plan_.length(first.origin) - first.batch;
  const BatchRows rows = plan_.rows(first.origin, first.batch, rank_);
  std::uint64_t batches = 1;
  // All of a launch have as many rows; the last of an epoch may have fewer.
  while (batches < std::min<std::uint64_t>(group_, left) &&
         plan_.rows(first.origin, first.batch + batches, rank_).rows == rows.rows)
    ++batches;
  auto block = take_block();
  if (!block) return fail(block.error());
  GatherJob job = set_->job();
  job.epoch = first.epoch;
  job.order = draws::epoch_order(job.samples, job.seed, job.epoch);
  job.out = reinterpret_cast<std::uint8_t*>(block->data);
  job.first = rows.first;
  job.batch_positions = std::uint64_t{info_.batch_size} * world_size_;
  job.batches = static_cast<std::int32_t>(batches);
  job.rows = static_cast<std::int32_t>(rows.rows);
  job.parts = gather_parts(job);
  if (auto launched = kernel_->launch(job, device_->copy_stream()); !launched) return launched;
  auto made = engine_.queued(block->owner);
  if (!made) return fail(made.error());
  for (std::uint64_t b = 0; b < batches; ++b) {
    const Cursor at{first.epoch, first.origin, first.batch + b};
    auto state = describe(at, plan_.rows(at.origin, at.batch, rank_), *block, job);
    state->base = block->data + b * layout_->bytes;
    state->copied = *made;
    queue_.emplace_back(std::move(state));
  }
  return {};
}

std::unique_ptr<DeviceBatch::State> ResidentLoader::describe(const Cursor& at, const BatchRows& rows,
                                                             const DeviceBlock& block,
                                                             const GatherJob& job) const {
  auto state = std::make_unique<DeviceBatch::State>();
  state->device = device_;
  state->layout = layout_;
  state->block = block;
  state->pooled = pool_ != nullptr;
  state->counts.assign(layout_->fields.size(), rows.rows);
  state->epoch = at.epoch;
  state->batch = at.batch;
  state->make_rows = Rows{job.order, job.shuffled, rows, set_->indices()};
  return state;
}

Result<std::optional<DeviceBatch>> ResidentLoader::next(std::chrono::milliseconds timeout) {
  if (auto own = fork_.check("loader"); !own) return fail(own.error());
  const auto asked = Clock::now();
  auto uploaded = upload(timeout);
  if (!uploaded) waited_ += Clock::now() - asked;
  if (!uploaded) return fail(uploaded.error());
  const std::uint64_t length = this->length();
  if (position_.batch >= length) {
    go_to({position_.epoch + 1, 0, 0});
    return std::nullopt;
  }
  // One more than is ahead: that which is asked for.
  while (queue_.size() <= options_.prefetch && position_.batch + queue_.size() < length) {
    const Cursor first{position_.epoch, position_.origin, position_.batch + queue_.size()};
    auto launched = launch(first);
    if (launched) continue;
    if (queue_.empty()) return fail(launched.error());
    break;  // less ahead than was asked for
  }
  std::optional<DeviceBatch> batch(std::move(queue_.front()));
  queue_.pop_front();
  ++position_.batch;
  begun_ = true;
  waited_ += Clock::now() - asked;
  return batch;
}

void ResidentLoader::go_to(const Cursor& cursor) {
  queue_.clear();
  position_ = cursor;
  begun_ = false;
}

Result<void> ResidentLoader::set_epoch(std::uint64_t epoch) {
  if (auto own = fork_.check("loader"); !own) return own;
  if (position_.batch >= length() && epoch == position_.epoch + 1) go_to({epoch, 0, 0});
  if (begun_ || position_.epoch != epoch) go_to({epoch, 0, 0});
  return {};
}

Result<void> ResidentLoader::next_epoch() {
  if (auto own = fork_.check("loader"); !own) return own;
  return begun_ ? set_epoch(position_.epoch + 1) : Result<void>();
}

Cursor ResidentLoader::cursor() const {
  return position_.batch >= length() ? Cursor{position_.epoch + 1, 0, 0} : position_;
}

State ResidentLoader::state() const {
  return {cursor(), info_.batch_size, world_size_, info_.name, info_.fingerprint};
}

Result<void> ResidentLoader::load_state(const State& state) {
  if (auto own = fork_.check("loader"); !own) return own;
  auto cursor = client::resume_cursor(state, info_, world_size_);
  if (!cursor) return fail(cursor.error());
  if (cursor->batch >= plan_.length(cursor->origin)) *cursor = {cursor->epoch + 1, 0, 0};
  if (*cursor == position_)
    begun_ = false;
  else
    go_to(*cursor);
  return {};
}

std::uint32_t ResidentLoader::ready() const {
  const std::uint64_t left = length() - std::min(length(), position_.batch);
  return set_->complete() ? static_cast<std::uint32_t>(std::min<std::uint64_t>(left, UINT32_MAX)) : 0;
}

}  // namespace headrace::gpu
