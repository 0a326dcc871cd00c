// Where a cursor stands in the sequence of a group's batches. Pure functions.
#pragma once

#include <compare>
#include <cstdint>

#include "headrace/cursor.h"
#include "server/sampler/order.h"

namespace headrace::server::publish {

/// The batch after `cursor`: past the last one of an epoch comes the next epoch's first.
Cursor advance(const sampler::EpochPlan& plan, Cursor cursor);
/// A cursor at or past its epoch's end becomes the next epoch's start.
Cursor normalised(const sampler::EpochPlan& plan, Cursor cursor);

/// How far a cursor is, comparable between cursors that count their batches from different origins or in
/// batches of different size.
struct Place {
  std::uint64_t epoch = 0, position = 0;

  friend auto operator<=>(const Place&, const Place&) = default;
};
Place place_of(const sampler::EpochPlan& plan, const Cursor& cursor);

/// Batches from `next` up to `place`, counted up to `most`.
std::uint32_t lag(const sampler::EpochPlan& plan, const Cursor& next, const Place& place, std::uint32_t most);

}  // namespace headrace::server::publish
