#include "server/cache/sample_cache.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "clientlib/ring/futex.h"

namespace headrace::server::cache {

SampleCache::SampleCache(std::shared_ptr<Arena> arena, std::uint64_t samples,
                         std::chrono::nanoseconds patience)
    : arena_(std::move(arena)),
      entries_(std::make_unique<Entry[]>(samples)),
      patience_ns_(static_cast<std::uint64_t>(patience.count())) {
  static_assert(sizeof(Entry) == kTableBytes);
  static_assert(alignof(Piece) <= Arena::kAlignment && std::is_trivially_destructible_v<Piece>);
}

SampleCache::Found SampleCache::lookup(std::uint64_t index, IfFilling filling) {
  Entry& entry = entries_[index];
  for (;;) {
    std::uint32_t state = entry.state.load(std::memory_order_acquire);  // SYNC cache-entry
    if (state == kReady) return {{entry.pieces, entry.count}, std::nullopt};
    if (state == kEmpty && entry.state.compare_exchange_strong(state, kFilling, std::memory_order_relaxed))
      return {{}, Claim(*this, index)};
    if (state == kRefused || filling == IfFilling::kDoNotWait || !wait(entry.state)) return {};
  }
}

void SampleCache::await(std::uint64_t index) const {
  auto& state = entries_[index].state;
  if (const std::uint32_t now = state.load(std::memory_order_relaxed); now == kFilling || now == kAwaited)
    wait(state);
}

bool SampleCache::wait(std::atomic<std::uint32_t>& of) const {
  for (std::uint64_t now = ring::monotonic_ns(), end = now + patience_ns_; now < end;
       now = ring::monotonic_ns()) {
    std::uint32_t state = kFilling;
    if (!of.compare_exchange_strong(state, kAwaited, std::memory_order_relaxed) && state != kAwaited)
      return true;
    ring::futex_wait(of, kAwaited, std::chrono::nanoseconds(end - now));
  }
  return false;
}

void SampleCache::settle(std::uint64_t index, State state) {
  Entry& entry = entries_[index];
  if (entry.state.exchange(state, std::memory_order_acq_rel) == kAwaited)  // SYNC cache-entry
    ring::futex_wake_all(entry.state);
}

bool SampleCache::rewrite(std::uint64_t index, std::size_t piece, std::span<const std::uint8_t> bytes) {
  Piece& kept = entries_[index].pieces[piece];
  if (bytes.size() > kept.capacity) return false;
  auto* const to = const_cast<std::uint8_t*>(kept.bytes.data());  // in the arena, which exposes it as const
  std::memcpy(to, bytes.data(), bytes.size());
  kept.bytes = {to, bytes.size()};
  return true;
}

bool SampleCache::Claim::admit(std::span<const Piece> pieces, std::span<const std::uint64_t> room) && {
  const auto room_of = [&](std::size_t i) {
    return std::max<std::uint64_t>(pieces[i].bytes.size(), i < room.size() ? room[i] : 0);
  };
  std::uint64_t size = pieces.size_bytes();
  for (std::size_t i = 0; i < pieces.size(); ++i) size += room_of(i);
  std::byte* const memory = cache_->arena_->allocate(size);
  if (memory == nullptr) {
    std::move(*this).refuse();
    return false;
  }
  auto* const kept = reinterpret_cast<Piece*>(memory);
  auto* bytes = reinterpret_cast<std::uint8_t*>(memory + pieces.size_bytes());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::span<const std::uint8_t> from = pieces[i].bytes;
    Piece& piece = *std::construct_at(kept + i, pieces[i]);
    piece.bytes = {bytes, from.size()};
    piece.capacity = room_of(i);
    if (!from.empty()) std::memcpy(bytes, from.data(), from.size());
    bytes += room_of(i);
  }
  Entry& entry = cache_->entries_[index_];
  entry.pieces = kept;
  entry.count = static_cast<std::uint32_t>(pieces.size());
  std::exchange(cache_, nullptr)->settle(index_, kReady);
  return true;
}

void SampleCache::Claim::refuse() && {
  std::exchange(cache_, nullptr)->settle(index_, kRefused);
}

}  // namespace headrace::server::cache
