#include "server/publish/position.h"

namespace headrace::server::publish {

Cursor normalized(const sampler::EpochPlan& plan, Cursor cursor) {
  if (cursor.batch < plan.length(cursor.origin)) return cursor;
  return Cursor{cursor.epoch + 1, 0, 0};
}

Position position_of(const sampler::EpochPlan& plan, const Cursor& cursor) {
  return {cursor.epoch, plan.consumed(cursor.origin, cursor.batch)};
}

std::uint32_t lag(const sampler::EpochPlan& plan, const Cursor& next, const Position& position,
                  std::uint32_t most) {
  if (most == 0 || position_of(plan, next) >= position) return 0;
  std::uint32_t before = 0, reached = most;  // before: too few batches
  while (reached - before > 1) {
    const std::uint32_t middle = before + (reached - before) / 2;
    (position_of(plan, advance(plan, next, middle)) < position ? before : reached) = middle;
  }
  return reached;
}

Cursor advance(const sampler::EpochPlan& plan, Cursor cursor, std::uint64_t batches) {
  const std::uint64_t length = plan.length(cursor.origin);
  cursor.batch += batches;
  if (cursor.batch < length) return cursor;
  const std::uint64_t beyond = cursor.batch - length, epoch = plan.length(0);
  return {cursor.epoch + 1 + beyond / epoch, 0, beyond % epoch};
}

std::optional<std::uint64_t> steps(const sampler::EpochPlan& plan, const Cursor& from, const Cursor& to) {
  if (to.epoch == from.epoch && to.origin == from.origin && to.batch >= from.batch)
    return to.batch - from.batch;
  if (to.epoch <= from.epoch || to.origin != 0) return std::nullopt;
  // A client may seek to any epoch, so the product may not fit.
  std::uint64_t between = 0;
  if (__builtin_mul_overflow(to.epoch - from.epoch - 1, plan.length(0), &between) ||
      __builtin_add_overflow(between, plan.length(from.origin) - from.batch, &between) ||
      __builtin_add_overflow(between, to.batch, &between))
    return std::nullopt;
  return between;
}

}  // namespace headrace::server::publish
