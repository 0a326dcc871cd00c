// Some samples of a source.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/source/member.h"

namespace headrace::server::source {

/// By exactly one of them.
struct SubsetOptions {
  std::vector<SourceRef> of;           ///< one
  std::optional<std::uint64_t> first;  ///< so many from the beginning
  std::optional<double> fraction;      ///< so many, spread over the source by `seed`
  std::uint64_t seed = 0;
  std::vector<std::string> classes;
  std::optional<std::filesystem::path> list;     ///< a file of relative paths
  std::optional<std::filesystem::path> indices;  ///< a file of indices

  static described::Description<SubsetOptions> description();
};

}  // namespace headrace::server::source
