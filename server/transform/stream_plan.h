// The transforms of each field of a stream's samples: one chain, of which each field uses its part.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/transform/mixing.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// A field made from another one.
struct DerivedField {
  std::string from;
  Derivation how;
};

struct StreamPlan {
  PlanConfig chain;  ///< for a field that every transform applies to
  /// For each transform of the chain: the fields that it applies to; empty: all images.
  std::vector<std::vector<std::string>> only;
  std::map<std::string, DerivedField> derived;
  std::optional<MixConfig> mix;  ///< mixes finished rows
  /// `device: gpu`: the device finishes images, except masks. The rows are the same, so it is not part of any
  /// fingerprint.
  bool on_device = false;
  std::vector<std::string> select;  ///< the fields of batches, besides "label"; empty: all

  /// The chain for `field`: transforms for other fields are replaced by skipped(), for a mask also color
  /// changes.
  [[nodiscard]] PlanConfig chain_of(const std::string& field, bool mask) const;
  /// Whether a crop comes before colors change: only the crop's part of an image is then decoded.
  [[nodiscard]] bool crops() const;
  /// All fields that transforms name.
  [[nodiscard]] std::vector<std::string> named() const;
};

}  // namespace headrace::server::transform
