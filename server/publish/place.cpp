#include "server/publish/place.h"

namespace headrace::server::publish {

Cursor normalised(const sampler::EpochPlan& plan, Cursor cursor) {
  if (cursor.batch < plan.length(cursor.origin)) return cursor;
  return Cursor{cursor.epoch + 1, 0, 0};
}

Place place_of(const sampler::EpochPlan& plan, const Cursor& cursor) {
  return {cursor.epoch, plan.consumed(cursor.origin, cursor.batch)};
}

std::uint32_t lag(const sampler::EpochPlan& plan, const Cursor& next, const Place& place,
                  std::uint32_t most) {
  std::uint32_t steps = 0;
  for (Cursor at = next; steps < most && place_of(plan, at) < place; ++steps) at = advance(plan, at);
  return steps;
}

Cursor advance(const sampler::EpochPlan& plan, Cursor cursor) {
  ++cursor.batch;
  return normalised(plan, cursor);
}

}  // namespace headrace::server::publish
