#include "server/exec/fed_supply.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/log/log.h"

namespace headrace::server::exec {

FedSupply::FedSupply(std::string stream, std::uint32_t batch_size, std::shared_ptr<source::Feed> feed)
    : stream_(std::move(stream)), batch_size_(batch_size), feed_(std::move(feed)) {}

std::uint64_t FedSupply::number(const Cursor& cursor) const {
  return cursor.epoch * feed_->batches() + cursor.batch;
}

Cursor FedSupply::cursor_of(std::uint64_t number) const {
  return {number / feed_->batches(), 0, number % feed_->batches()};
}

std::optional<publish::Position> FedSupply::end() const {
  const Cursor next = cursor_of(feed_->received());
  return publish::Position{next.epoch, next.batch * batch_size_};
}

Cursor FedSupply::oldest(const std::optional<Cursor>& hindmost) const {
  return hindmost.value_or(cursor_of(built_));
}

Error FedSupply::end_error() const {
  return {ErrorCode::kStreamFailed, fmt::format("stream `{}` ended before {}: {}", stream_,
                                                feed_->where(ended_->batches), ended_->why)};
}

void FedSupply::finish(std::string why, bool done) {
  if (ended_) return;
  ended_ = End{feed_->received(), std::move(why), done};
  log::warn("{}", end_error().message);
}

Result<void> FedSupply::may_join(const wire::OpenRequest& request,
                                 const std::optional<Cursor>& hindmost) const {
  const Cursor first = oldest(hindmost);
  if (exhausted(first)) return fail(end_error());
  const auto refuse = [&](const std::string& what) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream `{}` is fed from outside and gives each batch once: {}; the feeder decides the "
                    "order and where it resumes. Attach without this option, to begin at {}",
                    stream_, what, feed_->where(number(first))));
  };
  if (request.resume_server) return refuse("it cannot resume from the server's memory");
  if (request.position) {
    const Cursor& position = *request.position;
    if (position.origin != 0 || position.epoch > first.epoch + (1U << 20) || position < first ||
        number(position) > feed_->received())
      return refuse(fmt::format("{} is no longer available", to_string(position)));
    return {};
  }
  if (request.start) return refuse("a saved state cannot be loaded");
  if (request.join == Join::kEpochStart && first.batch != 0)
    return refuse(fmt::format("the start of epoch {} has passed (join: epoch_start)", first.epoch));
  return {};
}

Result<void> FedSupply::may_seek() const {
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("stream `{}` is fed from outside and gives each batch once, in order: clients cannot "
                  "seek in it",
                  stream_));
}

bool FedSupply::exhausted(const Cursor& next) const {
  return ended_ && number(next) >= ended_->batches;
}

void FedSupply::started(const Cursor& batch) {
  built_ = std::max(built_, number(batch) + 1);
}

void FedSupply::completed(const Cursor& batch) {
  feed_->release(number(batch));
}

}  // namespace headrace::server::exec
