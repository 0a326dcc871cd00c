// The caches of a stream's samples: one for each field of each source that the stream's source was put
// together from. Streams with other fields share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "server/cache/sample_cache.h"

namespace headrace::server::cache {

/// Thread safety: as SampleCache.
class SampleCaches {
 public:
  struct Part {
    std::uint64_t first = 0;  ///< index of its first sample; ascending from part to part
    /// One for each field, with the same arena. Empty: its samples are not kept.
    std::vector<std::shared_ptr<SampleCache>> fields;
  };

  SampleCaches() = default;  ///< none
  /// The first part begins at 0. At least one has caches; parts with caches have the same number of them.
  explicit SampleCaches(std::vector<Part> parts);

  /// Whether samples are kept.
  [[nodiscard]] explicit operator bool() const { return !parts_.empty(); }
  [[nodiscard]] std::size_t fields() const { return fields_; }  ///< of a sample
  /// Whether all fields of the sample are kept.
  [[nodiscard]] bool holds(std::uint64_t index) const;
  /// If all fields are kept, gives them and counts a hit. `fields` is unspecified otherwise.
  bool find(std::uint64_t index, std::vector<const Piece*>& fields) const;

  /// The right and the duty to fill a field: see SampleCache::Claim.
  struct Claim {
    std::size_t field;
    SampleCache::Claim entry;
  };
  /// The claims of a lookup. Those that are not settled are dropped: their fields are empty again.
  class Claims {
   public:
    /// Whether there is no field that the caller shall fill.
    [[nodiscard]] bool empty() const { return claims_.empty(); }
    [[nodiscard]] std::span<const Claim> all() const { return claims_; }
    /// The largest size, in bytes, at which one more field can now be kept. REQUIRES: !empty().
    [[nodiscard]] std::uint64_t room() const;
    /// Keeps the claimed fields. `pieces`: one for each field; null: never to be kept. A sample of which all
    /// fields are then kept, and none was before, is counted. REQUIRES: !empty().
    void admit(std::span<const Piece* const> pieces);
    /// For a sample that is bad in this stream: drops the claims, so that another stream may fill these
    /// fields. A field without a piece is never kept. REQUIRES: !empty().
    void refuse(std::span<const Piece* const> pieces);

   private:
    friend class SampleCaches;
    Arena* arena_ = nullptr;
    std::size_t lacking_ = 0;  ///< fields that were not kept
    bool new_ = true;          ///< no field was kept
    std::vector<Claim> claims_;
  };
  /// Gives the fields that are kept, and null for each other one. Counts a hit if all are kept, else a miss.
  /// If the part has no caches, `fields` is empty and nothing is counted. Waits for other workers that fill
  /// fields: see SampleCache::lookup(). `claims` must be new. Returns whether all fields are kept.
  bool lookup(std::uint64_t index, std::vector<const Piece*>& fields, Claims& claims) const;

 private:
  [[nodiscard]] const Part& of(std::uint64_t index) const;

  std::vector<Part> parts_;
  std::size_t fields_ = 0;
};

}  // namespace headrace::server::cache
