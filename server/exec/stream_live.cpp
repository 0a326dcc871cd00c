// Stream: what is particular to live ones, whose batches come from outside, each once.
//
// Nothing can be built twice. So a lane holds every batch from the one where it began, from open() on: the
// ledger's `on_lag: wait` keeps a batch until each open lane was granted it, and a new lane begins at the
// hindmost one's next, or, alone, at the first batch that was not built.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/exec/stream.h"

namespace headrace::server::exec {

std::uint64_t Stream::number(const Cursor& cursor) const {
  return cursor.epoch * setup_.feed->batches() + cursor.batch;
}

Cursor Stream::cursor_of(std::uint64_t number) const {
  return {number / setup_.feed->batches(), 0, number % setup_.feed->batches()};
}

void Stream::arrived() {
  const Cursor next = cursor_of(setup_.feed->received());
  ledger_.set_end({next.epoch, next.batch * setup_.info.batch_size});
}

void Stream::end(std::string why, bool done) {
  if (end_) return;
  end_ = End{setup_.feed->received(), std::move(why), done};
  spdlog::warn("{}", end_error().message);
}

Error Stream::end_error() const {
  return {ErrorCode::kStreamFailed, fmt::format("stream `{}` ended before {}: {}", setup_.info.name,
                                                setup_.feed->where(end_->batches), end_->why)};
}

Cursor Stream::oldest_batch() const {
  std::optional<Cursor> oldest;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) && (!oldest || ledger_.next(lane) < *oldest))
      oldest = ledger_.next(lane);
  return oldest.value_or(cursor_of(built_));
}

Result<void> Stream::may_join(const wire::OpenRequest& request) const {
  const Cursor oldest = oldest_batch();
  if (end_ && number(oldest) >= end_->batches) return fail(end_error());
  const auto refuse = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}` is fed from outside and gives each batch once: {}; its order and "
                            "where it resumes are its feeder's. Attach without it, which begins at {}",
                            setup_.info.name, what, setup_.feed->where(number(oldest))));
  };
  if (request.resume_server) return refuse("it cannot be resumed by the server's memory");
  if (request.position) {
    const Cursor& position = *request.position;
    if (position.origin != 0 || position.epoch > oldest.epoch + (1U << 20) || position < oldest ||
        number(position) > setup_.feed->received())
      return refuse(fmt::format("{} is not to be had any more", to_string(position)));
    return {};
  }
  if (request.start) return refuse("a saved state cannot be loaded");
  if (request.join == Join::kEpochStart && oldest.batch != 0)
    return refuse(fmt::format("the start of epoch {} has gone (join: epoch_start)", oldest.epoch));
  return {};
}

std::optional<Error> Stream::failure_of(std::uint32_t lane) const {
  if (failed()) return failure();
  if (end_ && number(ledger_.next(lane)) >= end_->batches) return end_error();
  return std::nullopt;
}

Result<void> Stream::may_seek(std::uint32_t lane) const {
  if (auto why = failure_of(lane)) return fail(std::move(*why));
  if (!live()) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("stream `{}` is fed from outside and gives each batch once, in order: there is no "
                          "going elsewhere in it",
                          setup_.info.name));
}

bool Stream::expects_client() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.used && !lane.attached; });
}

void Stream::tell_end() {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.sink || lane.told_end || number(ledger_.next(index)) < end_->batches) continue;
    lane.told_end = true;
    ring_->set_lane_state(index, ring::kLaneFailed);
  }
}

bool Stream::served_to_end() const {
  if (!end_ || built_ < end_->batches || !jobs_.empty() || expects_client()) return false;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) &&
        (number(ledger_.next(lane)) < end_->batches || ledger_.leases(lane) > 0))
      return false;
  return true;
}

}  // namespace headrace::server::exec
