// What composed sources are made of.
#pragma once

#include <memory>
#include <string>

#include "server/source/source.h"

namespace headrace::server::source {

struct Member {
  std::string name;  ///< as messages call it: "photos", "photos.train"
  std::shared_ptr<const Source> source;
};

/// Sizes of composed sources stay below this: products cannot overflow.
inline constexpr std::uint64_t kMostComposed = 1'000'000'000'000;

}  // namespace headrace::server::source
