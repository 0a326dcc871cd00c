#include "server/cache/sample_caches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "clientlib/base/contract.h"

namespace headrace::server::cache {

SampleCaches::SampleCaches(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    if (part.fields.empty()) continue;
    require(fields_ == 0 || fields_ == part.fields.size(), "expected as many caches in each part");
    fields_ = part.fields.size();
  }
}

const SampleCaches::Part& SampleCaches::of(std::uint64_t index) const {
  if (parts_.size() == 1) return parts_.front();
  return *std::prev(
      std::upper_bound(parts_.begin(), parts_.end(), index,
                       [](std::uint64_t wanted, const Part& part) { return wanted < part.first; }));
}

bool SampleCaches::holds(std::uint64_t index) const {
  const Part& part = of(index);
  return !part.fields.empty() && std::all_of(part.fields.begin(), part.fields.end(), [&](const auto& cache) {
    return cache->holds(index - part.first);
  });
}

bool SampleCaches::find(std::uint64_t index, std::vector<const Piece*>& fields) const {
  const Part& part = of(index);
  fields.clear();
  for (const auto& cache : part.fields) {
    const auto kept = cache->kept(index - part.first);
    if (kept.empty()) return false;
    fields.push_back(kept.data());
  }
  if (fields.empty()) return false;
  part.fields.front()->arena().count_lookup(true);
  return true;
}

bool SampleCaches::lookup(std::uint64_t index, std::vector<const Piece*>& fields, Claims& claims) const {
  using IfFilling = SampleCache::IfFilling;
  const Part& part = of(index);
  const std::uint64_t own = index - part.first;
  fields.clear();
  if (part.fields.empty()) return false;
  // Wait for all fields that others fill before claiming one: a caller with claims must not wait.
  if (part.fields.size() > 1)
    for (const auto& cache : part.fields) cache->await(own);
  for (std::size_t f = 0; f < part.fields.size(); ++f) {
    auto found = part.fields[f]->lookup(own, claims.empty() ? IfFilling::kWait : IfFilling::kDoNotWait);
    const bool kept = !found.pieces.empty();
    fields.push_back(kept ? found.pieces.data() : nullptr);
    if (!kept) ++claims.lacking_;
    if (found.claim) claims.claims_.push_back({f, std::move(*found.claim)});
  }
  claims.arena_ = &part.fields.front()->arena();
  claims.new_ = claims.lacking_ == fields.size();
  claims.arena_->count_lookup(claims.lacking_ == 0);
  return claims.lacking_ == 0;
}

std::uint64_t SampleCaches::Claims::room() const {
  const std::uint64_t left = arena_->left();
  return left > sizeof(Piece) ? left - sizeof(Piece) : 0;
}

void SampleCaches::Claims::admit(std::span<const Piece* const> pieces) {
  std::size_t kept = 0;
  for (Claim& claim : claims_) {
    if (const Piece* const piece = pieces[claim.field]; piece == nullptr) {
      std::move(claim.entry).refuse();
    } else if (std::move(claim.entry).admit({piece, 1})) {
      ++kept;
    }
  }
  claims_.clear();
  if (kept < lacking_) {
    arena_->count_refusal();
  } else if (new_) {
    arena_->count_sample();
  }
}

void SampleCaches::Claims::refuse(std::span<const Piece* const> pieces) {
  for (Claim& claim : claims_)
    if (pieces[claim.field] == nullptr) std::move(claim.entry).refuse();
  claims_.clear();
  arena_->count_refusal();
}

}  // namespace headrace::server::cache
