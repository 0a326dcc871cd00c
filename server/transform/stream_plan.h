// What a stream does to each field of its samples: one chain for all, of which each field sees its part.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/transform/mixing.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

/// A field that is made of another one.
struct DerivedField {
  std::string from;
  Derivation how;
};

struct StreamPlan {
  PlanConfig chain;  ///< as for a field that takes part in everything
  /// Of each transform of the chain: the fields that it is for; empty: all images.
  std::vector<std::vector<std::string>> only;
  std::map<std::string, DerivedField> derived;
  std::optional<MixConfig> mix;  ///< of finished rows
  /// `device: gpu`: images are finished there, but for masks. The same rows, so it is no part of any
  /// fingerprint.
  bool on_device = false;
  std::vector<std::string> select;  ///< the fields that batches have, besides "label"; empty: all

  /// The chain as `field` sees it: what is for others holds its place. A mask is spared what changes colours.
  [[nodiscard]] PlanConfig chain_of(const std::string& field, bool mask) const;
  /// Whether a crop comes before colours change: then no more of an image is decoded than the crop needs.
  [[nodiscard]] bool crops() const;
  /// All fields that transforms name.
  [[nodiscard]] std::vector<std::string> named() const;
};

}  // namespace headrace::server::transform
