#include "clientlib/gpu/fetched/fetcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "clientlib/gpu/copy/block_pool.h"
#include "clientlib/gpu/copy/ring_copy.h"

namespace headrace::gpu {
namespace {

using std::chrono::milliseconds;

/// Time between two calls of the caller's `interrupt`.
constexpr milliseconds kLook{50};
/// How late the stream may report its own timeout.
constexpr std::chrono::seconds kSlack{5};
/// Timeout of Stream::next() while the loop does not wait, after which it is called again. Shorter than a
/// wait that the stream warns of.
constexpr milliseconds kAtEase = std::chrono::seconds(5);

}  // namespace

Fetcher::Fetcher(Stream& stream, CopyEngine& engine, Blocks blocks)
    : stream_(stream), engine_(engine), blocks_(std::move(blocks)), thread_([this] { run(); }) {}

Fetcher::~Fetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::size_t Fetcher::under_way() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + supply_.size() + (busy_ ? 1 : 0);
}

void Fetcher::supply(DeviceBlock block) {
  {
    const std::lock_guard lock(mutex_);
    supply_.push_back(std::move(block));
  }
  changed_.notify_all();
}

void Fetcher::resume() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(running_, true)) return;
  }
  changed_.notify_all();
}

void Fetcher::pause() {
  std::unique_lock lock(mutex_);
  running_ = false;
  changed_.wait(lock, [&] { return !busy_; });
}

std::optional<Fetched> Fetcher::take(Clock::time_point deadline, const std::function<bool()>& interrupt) {
  const auto asked = Clock::now();
  std::unique_lock lock(mutex_);
  if (queue_.empty()) {
    awaited_by_ = deadline;
    changed_.notify_all();
  }
  while (queue_.empty()) {
    if (changed_.wait_for(lock, kLook, [&] { return !queue_.empty(); })) break;
    lock.unlock();
    const bool interrupted = interrupt && interrupt();
    lock.lock();
    // The stream reports its own timeout. If nothing comes even later, a copy does not finish.
    const bool stuck = queue_.empty() && Clock::now() > deadline + kSlack;
    if (!interrupted && !stuck) continue;
    awaited_by_.reset();
    if (interrupted) return std::nullopt;
    return Fetched{.error =
                       Error{ErrorCode::kTimeout,
                             fmt::format("device {}: no batch copy finished within {:.0f} s: earlier work on "
                                         "the device's streams may be blocking it; look for a kernel that "
                                         "does not end, or raise the timeout (Python: batch_timeout)",
                                         blocks_.device->name(),
                                         std::chrono::duration<double>(Clock::now() - asked).count())}};
  }
  awaited_by_.reset();
  Fetched first = std::move(queue_.front());
  queue_.pop_front();
  changed_.notify_all();
  return first;
}

std::uint32_t Fetcher::ready() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(
      std::ranges::count_if(queue_, [](const Fetched& f) { return f.batch.has_value(); }));
}

bool Fetcher::running() const {
  const std::lock_guard lock(mutex_);
  return running_ || busy_;
}

// Destroys dropped batches without the mutex: a block's owner may need Python's GIL, which another thread
// may hold.
bool Fetcher::drop_until(const Cursor& target) {
  std::deque<Fetched> dropped;
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(queue_, [&](const Fetched& f) { return f.batch && f.position == target; });
  if (found == queue_.end()) return false;
  dropped.insert(dropped.end(), std::make_move_iterator(queue_.begin()), std::make_move_iterator(found));
  queue_.erase(queue_.begin(), found);
  return true;
}

void Fetcher::drop_all() {
  std::deque<Fetched> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(queue_);
}

bool Fetcher::wanted_elsewhere() {
  const std::lock_guard lock(mutex_);
  return stopping_ || !running_ || (awaited_by_ && awaited_by_ != limited_by_);
}

milliseconds Fetcher::limit() {
  const std::lock_guard lock(mutex_);
  limited_by_ = awaited_by_;
  if (!limited_by_) return kAtEase;
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*limited_by_ - Clock::now()));
}

bool Fetcher::wanted() const {
  return running_ && !supply_.empty() && queue_.size() < blocks_.prefetch + (awaited_by_ ? 1U : 0U);
}

void Fetcher::run() {
  blocks_.device->enter_thread();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || wanted(); });
    if (stopping_) return;
    std::optional<DeviceBlock> block = std::move(supply_.front());
    supply_.pop_front();
    busy_ = true;
    lock.unlock();
    std::optional<Fetched> fetched = fetch(block);
    lock.lock();
    busy_ = false;
    if (block) supply_.push_front(std::move(*block));
    block.reset();
    if (fetched) {
      if (fetched->error) running_ = false;  // until the loop has received the error
      queue_.push_back(std::move(*fetched));
    }
    changed_.notify_all();
  }
}

Result<std::optional<BatchView>> Fetcher::next() {
  for (;;) {
    // Keep one lease free: without one the stream copies the batch, which would then be copied again.
    while (stream_.live_views() + 1 >= stream_.max_leases() && !flying_.empty()) {
      (void)flying_.front().wait({});  // this thread is ahead of the loop, and leaves the core to it
      flying_.pop_front();
    }
    auto batch = stream_.next(limit());
    if (batch || batch.error().code != ErrorCode::kTimeout) return batch;
    const std::lock_guard lock(mutex_);
    if (stopping_ || !running_) return batch;
    if (limited_by_ && Clock::now() >= *limited_by_ && awaited_by_ == limited_by_) return batch;
  }
}

std::optional<Fetched> Fetcher::fetch(std::optional<DeviceBlock>& block) {
  Fetched fetched{.position = stream_.cursor(), .length = stream_.length()};
  auto batch = next();
  if (!batch && batch.error().code == ErrorCode::kTimeout && wanted_elsewhere()) return std::nullopt;
  if (!batch) fetched.error = batch.error();
  if (!batch || !*batch) return fetched;
  auto state = std::make_unique<DeviceBatch::State>();
  state->block = std::move(*block);
  block.reset();
  if (auto shipped = ship(std::move(**batch), *state); !shipped)
    return Fetched{.error = shipped.error(), .lost = true};
  fetched.batch.emplace(std::move(state));
  return fetched;
}

Result<void> Fetcher::ship(BatchView batch, DeviceBatch::State& state) {
  if (blocks_.pooled)
    if (auto held = BlockPool::hold_copies(state.block); !held) return held;
  state.device = blocks_.device;
  state.layout = blocks_.layout;
  state.pooled = blocks_.pooled;
  state.epoch = batch.epoch();
  state.batch = batch.batch();
  state.rows = batch.all_rows();
  if (!finisher_ && !blocks_.finished.empty()) {
    auto finisher = RowFinisher::open(blocks_.finished, blocks_.layout->rows, blocks_.device);
    if (!finisher) return fail(finisher.error());
    finisher_.emplace(std::move(*finisher));
  }
  auto copied = copy(std::move(batch), state);
  if (!copied) return fail(copied.error());
  state.copied = *copied;
  flying_.push_back(*copied);
  while (flying_.front().done() && flying_.size() > 1) flying_.pop_front();
  return finisher_ ? finish(state) : Result<void>();
}

Result<Completion> Fetcher::copy(BatchView batch, DeviceBatch::State& state) {
  std::vector<Transfer> transfers, pictures;
  auto counts = blocks_.layout->add_transfers(batch, state.block.data, transfers);
  if (!counts) return fail(counts.error());
  state.counts = std::move(*counts);
  if (finisher_) finisher_->add_transfers(batch, pictures);
  std::shared_ptr<const BatchView::Lease> lease = batch.lease();
  batch.release();
  const BatchView::Lease& leased = *lease;  // valid until the engine has taken `lease`
  return copy_leased(engine_, leased, [&] {
    if (!pictures.empty())
      if (auto first = engine_.copy(pictures, lease); !first) return first;
    return engine_.copy_into({state.block.data, blocks_.layout->bytes, state.block.owner}, transfers,
                             std::move(lease));
  });
}

Result<void> Fetcher::finish(DeviceBatch::State& state) {
  const auto rows = static_cast<std::uint32_t>(state.rows.size());
  if (auto launched = finisher_->launch(state.block.data, rows, *blocks_.layout); !launched) return launched;
  auto finished = engine_.queued(state.block.owner);
  if (!finished) return fail(finished.error());
  state.copied = *finished;
  return {};
}

}  // namespace headrace::gpu
