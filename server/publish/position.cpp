#include "server/publish/position.h"

namespace headrace::server::publish {

Cursor normalised(const sampler::EpochPlan& plan, Cursor cursor) {
  if (cursor.batch < plan.length(cursor.origin)) return cursor;
  return Cursor{cursor.epoch + 1, 0, 0};
}

Position position_of(const sampler::EpochPlan& plan, const Cursor& cursor) {
  return {cursor.epoch, plan.consumed(cursor.origin, cursor.batch)};
}

std::uint32_t lag(const sampler::EpochPlan& plan, const Cursor& next, const Position& position,
                  std::uint32_t most) {
  std::uint32_t steps = 0;
  for (Cursor at = next; steps < most && position_of(plan, at) < position; ++steps) at = advance(plan, at);
  return steps;
}

Cursor advance(const sampler::EpochPlan& plan, Cursor cursor) {
  ++cursor.batch;
  return normalised(plan, cursor);
}

}  // namespace headrace::server::publish
