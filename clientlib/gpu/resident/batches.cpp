// Batches from a dataset in GPU memory: a kernel launch computes one, or several small ones. Order, cursor,
// state and rows are the same as for any other client of the stream. No byte of a batch comes from the host,
// and after the upload the loader sends the server no requests.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/base/epoch_plan.h"
#include "clientlib/base/human.h"
#include "clientlib/client/resume.h"
#include "clientlib/gpu/batch_source.h"
#include "clientlib/gpu/resident/set.h"
#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {
namespace {

using Clock = std::chrono::steady_clock;

/// Time between two progress lines on stderr: the loop waits during an upload, and the user should see why.
constexpr std::chrono::seconds kQuiet{3};

/// Batches of one launch. For small batches, memory, launch and events cost the host more time than the
/// kernel takes.
constexpr std::size_t kLaunchBatches = 16, kLaunchBytes = std::size_t{8} << 20;

std::uint32_t most_batches_of(const Stream& stream) {
  const StreamInfo& info = stream.info();
  const auto layout = BatchLayout::plan(info);
  require(layout.has_value(), "the stream's fields do not fit the layout of a slot");
  const EpochPlan plan(info.samples, info.batch_size, stream.options().world_size, info.last);
  const std::uint64_t fit = std::min<std::uint64_t>(kLaunchBytes / layout->bytes, plan.length(0));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fit, 1, kLaunchBatches));
}

/// Computes the RowInfo of a batch's rows, as the server would send it.
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

struct ResidentBatches final : DeviceLoader::Source {
  const std::uint32_t rank;
  const EpochPlan plan;
  std::deque<DeviceBatch> queue;   ///< the first batch is the one at `position`
  std::optional<ResidentSet> set;  ///< destroyed before the engine
  /// A shard stream stays attached, though idle, so that the server can report ranks that disagree. Other
  /// streams detach once the loader is open.
  std::optional<Stream> place;

  ResidentBatches(const Stream& stream, std::shared_ptr<Device> to, const DeviceLoaderOptions& given)
      : Source(stream, std::move(to), given, most_batches_of(stream)),
        rank(stream.options().rank),
        plan(info.samples, info.batch_size, world_size, info.last) {}
  ~ResidentBatches() override {
    if (fork.forked()) return;
    queue.clear();
    device->synchronize();  // launches read the set
  }

  Result<void> upload(std::chrono::milliseconds timeout) {
    if (set->complete()) return {};
    auto told = Clock::now();
    return set->upload(timeout, interrupt, [&](std::uint64_t samples) {
      if (options.uploading) return options.uploading(samples, info.samples);
      if (Clock::now() - told < kQuiet) return;
      told = Clock::now();
      fmt::print(stderr, "headrace: stream '{}': uploaded {} of {} samples to {} ({} in all)\n", info.name,
                 samples, info.samples, engine.device_name(), human_bytes(set->bytes()));
    });
  }

  /// The number of batches from `at` on that one launch can compute: full ones follow each other at a fixed
  /// distance, and only the last batch of an epoch can be short.
  [[nodiscard]] std::uint32_t launchable(const Cursor& at) const {
    const auto full = [&](std::uint32_t i) {
      return at.batch + i < plan.length(at.origin) &&
             plan.rows(at.origin, at.batch + i, rank).rows == info.batch_size;
    };
    std::uint32_t count = 1;
    while (count < batches_per_block && full(count)) ++count;
    return count;
  }

  /// Queues the kernel that computes the batch at `at`, and as many after it as launchable() says.
  Result<void> launch(const Cursor& at) {
    const std::uint32_t count = launchable(at);
    auto block = take_block(count);
    if (!block) return fail(block.error());
    if (pool)
      if (auto held = BlockPool::hold_copies(*block); !held) return held;
    const BatchRows rows = plan.rows(at.origin, at.batch, rank);
    RowJob job = set->job();
    job.epoch = at.epoch;
    job.order = draws::epoch_order(job.samples, job.seed, job.epoch);
    job.out = reinterpret_cast<std::uint8_t*>(block->data);
    job.first = rows.first;
    job.rows = static_cast<std::int32_t>(count * rows.rows);
    job.batch_rows = static_cast<std::int32_t>(rows.rows);
    job.batch_bytes = layout->bytes;
    job.batch_positions = std::uint64_t{info.batch_size} * world_size;
    job.parts = row_parts(job);
    if (auto launched = device->launch(job); !launched) return launched;
    auto made = engine.queued(block->owner);
    if (!made) return fail(made.error());
    for (std::uint32_t i = 0; i < count; ++i) {
      auto state = std::make_unique<DeviceBatch::State>();
      state->device = device;
      state->layout = layout;
      state->block = {block->data + i * layout->bytes, layout->bytes, block->owner, i, count};
      state->pooled = pool != nullptr;
      state->counts.assign(layout->fields.size(), rows.rows);
      state->epoch = at.epoch;
      state->batch = at.batch + i;
      state->make_rows =
          Rows{job.order, job.shuffled, plan.rows(at.origin, at.batch + i, rank), set->indices()};
      state->copied = *made;
      queue.emplace_back(std::move(state));
    }
    return {};
  }

  /// The first call also uploads the dataset, however long that takes: `timeout` bounds only the wait for
  /// each batch of the upload.
  Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout) override {
    const auto asked = Clock::now();
    auto uploaded = upload(timeout);
    if (!uploaded) waited += Clock::now() - asked;
    if (!uploaded) return fail(uploaded.error());
    if (position.batch >= length()) {
      go_to({position.epoch + 1, 0, 0});
      return std::nullopt;
    }
    // `prefetch` batches or more, and the requested one.
    while (queue.size() <= options.prefetch && position.batch + queue.size() < length()) {
      auto launched = launch({position.epoch, position.origin, position.batch + queue.size()});
      if (launched) continue;
      if (queue.empty()) return fail(launched.error());
      break;  // prefetch fewer batches than configured
    }
    std::optional<DeviceBatch> batch(std::move(queue.front()));
    queue.pop_front();
    ++position.batch;
    begun = true;
    waited += Clock::now() - asked;
    return batch;
  }

  void go_to(const Cursor& cursor) {
    queue.clear();
    position = cursor;
    begun = false;
  }

  [[nodiscard]] std::uint64_t length() const override { return plan.length(position.origin); }
  Result<void> set_epoch(std::uint64_t epoch) override {
    if (begun || position.epoch != epoch) go_to({epoch, 0, 0});
    return {};
  }
  [[nodiscard]] Cursor cursor() const override {
    return position.batch >= length() ? Cursor{position.epoch + 1, 0, 0} : position;
  }
  Result<void> load_state(const State& state) override {
    auto cursor = client::resume_cursor(state, info, world_size);
    if (!cursor) return fail(cursor.error());
    if (cursor->batch >= plan.length(cursor->origin)) *cursor = {cursor->epoch + 1, 0, 0};
    if (*cursor == position)
      begun = false;
    else
      go_to(*cursor);
    return {};
  }
  [[nodiscard]] std::uint32_t ready() const override {
    const std::uint64_t left = length() - std::min(length(), position.batch);
    return set->complete() ? static_cast<std::uint32_t>(std::min<std::uint64_t>(left, UINT32_MAX)) : 0;
  }
};

}  // namespace

Result<std::unique_ptr<DeviceLoader::Source>> make_resident_batches(Stream stream,
                                                                    std::shared_ptr<Device> device,
                                                                    const DeviceLoaderOptions& options) {
  const StreamInfo& info = stream.info();
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("stream '{}': {}", info.name, why));
  };
  if (stream.options().resume_from_server)
    return refuse(
        "cannot resume from the server's memory: batches are computed on the device (`residence: gpu`), so "
        "the server does not know which were consumed; resume from a saved state (Python: state_dict())");
  if (info.samples == 0 || info.batch_size == 0)
    return refuse(fmt::format("it has {} samples and batch size {}: expected 1 or more of each", info.samples,
                              info.batch_size));
  if (stream.cursor().origin > info.samples)
    return fail(ErrorCode::kBadMessage,
                fmt::format("stream '{}': the server starts the epoch at sample {}: expected at most {}, the "
                            "number of samples",
                            info.name, stream.cursor().origin, info.samples));
  auto batches = std::make_unique<ResidentBatches>(stream, std::move(device), options);
  // Blocks with prefetched batches, the block of the loop's batch, and one that ends an epoch with few
  // batches.
  const std::size_t each = batches->batches_per_block;
  const std::size_t ahead = ((options.prefetch + each - 1) / each + 2) * each;
  auto set = ResidentSet::allocate(stream, *batches->layout, batches->engine, *batches->device,
                                   ahead * batches->layout->bytes);
  if (!set) return fail(set.error());
  batches->set.emplace(std::move(*set));
  if (info.delivery == Delivery::kShard) batches->place.emplace(std::move(stream));
  return batches;
}

}  // namespace headrace::gpu
