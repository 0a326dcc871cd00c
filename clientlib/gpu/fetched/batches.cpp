// Batches that are fetched through the ring. `position` is the batch that next() returns next; the stream is
// ahead of it by the prefetched batches.
#include <algorithm>
#include <utility>

#include "clientlib/client/resume.h"
#include "clientlib/gpu/batch_source.h"
#include "clientlib/gpu/fetched/fetcher.h"

namespace headrace::gpu {
namespace {

struct FetchedBatches final : DeviceLoader::Source {
  Stream stream;
  std::uint64_t epoch_rest = 0, epoch_length = 0;  ///< batches of the current epoch, and of a whole one
  Cursor skip_to;       ///< a live stream cannot seek: batches before this cursor are dropped
  bool behind = false;  ///< the stream no longer matches the queue and `position`: seek before fetching
  std::chrono::nanoseconds waited_uncommitted{0};
  Fetcher fetcher;  ///< last: destroyed before the members that it uses

  FetchedBatches(Stream from, std::shared_ptr<Device> to, const DeviceLoaderOptions& given,
                 std::vector<FinishedField> finished)
      : Source(from, std::move(to), given),
        stream(std::move(from)),
        fetcher(stream, engine, {device, layout, given.prefetch, pool != nullptr, std::move(finished)}) {
    follow_stream();
    stream.set_interrupt(
        [this] { return fetcher.fetches_here() ? fetcher.wanted_elsewhere() : interrupt && interrupt(); });
  }

  void follow_stream() {
    position = stream.cursor();
    epoch_rest = stream.length();
    epoch_length = stream.epoch_length();
    if (position.batch == 0 && position.origin == 0) epoch_rest = epoch_length;
    begun = false;
  }

  void begin_epoch(std::uint64_t epoch) {
    position = {epoch, 0, 0};
    epoch_rest = epoch_length;
    begun = false;
  }

  Result<void> supply() {
    while (fetcher.under_way() <= options.prefetch) {  // `prefetch` batches, and the requested one
      auto block = take_block(1);
      if (!block && fetcher.under_way() > 0) return {};  // prefetch fewer batches than configured
      if (!block) return fail(block.error());
      fetcher.supply(std::move(*block));
    }
    return {};
  }

  /// Moves the stream by `change`, drops what was prefetched, and takes the loop's position from the stream.
  template <class F>
  Result<void> seek(F change) {
    fetcher.pause();
    if (auto changed = change(stream); !changed) return changed;
    fetcher.drop_all();
    behind = false;
    follow_stream();
    return {};
  }

  Result<void> come_back() {
    if (!behind || info.live) return {};
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
    if (!behind && fetcher.drop_until({epoch, 0, 0})) {
      begin_epoch(epoch);
      return {};
    }
    // By a state: the stream's own set_epoch() does nothing if that epoch has not begun for the stream.
    if (begun && epoch == position.epoch)
      return seek([&](Stream& s) {
        State state = s.state();
        state.cursor = {epoch, 0, 0};
        return s.load_state(state);
      });
    return seek([&](Stream& s) { return s.set_epoch(epoch); });
  }

  /// Returns the stream's own error.
  Result<void> stream_refuses(std::uint64_t epoch) {
    fetcher.pause();
    return stream.set_epoch(epoch);
  }

  Result<std::optional<DeviceBatch>> next(std::chrono::milliseconds timeout) override {
    commit();
    if (auto back = come_back(); !back) return fail(back.error());
    const auto asked = Fetcher::Clock::now();
    auto counted = asked;
    const auto count = [&] {
      const auto now = Fetcher::Clock::now();
      const auto spent = now - std::exchange(counted, now);
      waited += spent;
      waited_uncommitted += spent;
    };
    // Commits the wait so far, so that the server's metrics show it before it ends.
    const auto poll = [&] {
      count();
      commit();
      return interrupt && interrupt();
    };
    for (;;) {
      if (auto supplied = supply(); !supplied) return fail(supplied.error());
      fetcher.resume();
      auto fetched = fetcher.take(asked + timeout, poll);
      count();
      if (!fetched) return fail(ErrorCode::kTimeout, "interrupted while waiting for a batch");
      if (fetched->error) {
        behind = fetched->lost;
        return fail(std::move(*fetched->error));
      }
      if (!fetched->batch) {
        begin_epoch(position.epoch + 1);
        if (position <= skip_to) continue;
        return std::nullopt;
      }
      position = fetched->position;
      ++position.batch;
      epoch_rest = fetched->length;
      if (fetched->position < skip_to) continue;
      begun = true;
      return std::move(*fetched->batch);
    }
  }

  void commit() { stream.commit(position, std::exchange(waited_uncommitted, {})); }

  [[nodiscard]] std::uint64_t length() const override { return epoch_rest; }
  [[nodiscard]] std::uint64_t epoch() const override { return std::max(position, skip_to).epoch; }
  Result<void> set_epoch(std::uint64_t epoch) override {
    if (position.batch >= epoch_rest && epoch == position.epoch + 1) {
      // The loop has had all batches of its epoch: skip the end of that epoch.
      if (fetcher.drop_until({epoch, 0, 0})) {
        begin_epoch(epoch);
        return {};
      }
    } else if (!begun && this->epoch() == epoch) {
      return {};
    }
    return go_to_epoch(epoch);
  }
  [[nodiscard]] Cursor cursor() const override {
    const Cursor due = std::max(position, skip_to);
    return due.batch >= epoch_rest ? Cursor{due.epoch + 1, 0, 0} : due;
  }
  Result<void> load_state(const State& state) override {
    if (!behind && !info.live) {
      const auto cursor = client::resume_cursor(state, info, world_size);
      if (!cursor) return fail(cursor.error());
      if (*cursor == position) {
        begun = false;
        return {};
      }
    }
    return seek([&](Stream& s) { return s.load_state(state); });
  }
  [[nodiscard]] std::uint32_t ready() const override {
    return fetcher.ready() + (fetcher.running() ? 0 : stream.ready());
  }
};

}  // namespace

Result<std::unique_ptr<DeviceLoader::Source>> fetch_batches(Stream stream, std::shared_ptr<Device> device,
                                                            const DeviceLoaderOptions& options) {
  auto finished = plan_fields(stream.info());
  if (!finished) return fail(finished.error());
  return std::make_unique<FetchedBatches>(std::move(stream), std::move(device), options,
                                          std::move(*finished));
}

}  // namespace headrace::gpu
