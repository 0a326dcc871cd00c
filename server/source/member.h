// The parts of composed sources.
#pragma once

#include <memory>
#include <string>

#include "server/source/source.h"

namespace headrace::server::source {

/// "photos", or "photos.train" for one part of a split.
struct SourceRef {
  std::string name;
  std::string part;  ///< empty: the whole source

  static SourceRef of(const std::string& text) {
    const auto dot = text.find('.');
    return {text.substr(0, dot), dot == std::string::npos ? "" : text.substr(dot + 1)};
  }
  [[nodiscard]] std::string text() const { return part.empty() ? name : name + "." + part; }
};

struct Member {
  std::string name;  ///< for messages: "photos", "photos.train"
  std::shared_ptr<const Source> source;
};

/// Composed sources are smaller than this, so that products of sizes cannot overflow.
inline constexpr std::uint64_t kMostComposed = 1'000'000'000'000;

}  // namespace headrace::server::source
