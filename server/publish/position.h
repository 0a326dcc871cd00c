// The position of a cursor in the sequence of a group's batches. Pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "headrace/cursor.h"
#include "server/sampler/order.h"

namespace headrace::server::publish {

/// The cursor `batches` later; after the last batch of an epoch comes the first one of the next epoch.
/// `cursor` must not be at or past its epoch's end.
Cursor advance(const sampler::EpochPlan& plan, Cursor cursor, std::uint64_t batches = 1);
/// The number for which advance(plan, from, number) is `to`; nullopt if there is none.
std::optional<std::uint64_t> steps(const sampler::EpochPlan& plan, const Cursor& from, const Cursor& to);
/// A cursor at or past its epoch's end becomes the next epoch's start.
Cursor normalized(const sampler::EpochPlan& plan, Cursor cursor);

/// How far a cursor is. Comparable between cursors that count batches from different origins or in different
/// batch sizes.
struct Position {
  std::uint64_t epoch = 0, position = 0;

  friend auto operator<=>(const Position&, const Position&) = default;
};
Position position_of(const sampler::EpochPlan& plan, const Cursor& cursor);

/// Batches from `next` up to `position`, counted up to `most`.
std::uint32_t lag(const sampler::EpochPlan& plan, const Cursor& next, const Position& position,
                  std::uint32_t most);

}  // namespace headrace::server::publish
