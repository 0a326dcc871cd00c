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

/// Exactly one of the choices is set.
struct SubsetOptions {
  std::vector<SourceRef> of;           ///< exactly one
  std::optional<std::uint64_t> first;  ///< the number of samples, from the beginning
  std::optional<double> fraction;      ///< the share of samples, spread over the source by `seed`
  std::uint64_t seed = 0;
  std::vector<std::string> classes;
  std::optional<std::filesystem::path> list;     ///< a file of relative paths
  std::optional<std::filesystem::path> indices;  ///< a file of indices

  static described::Description<SubsetOptions> description();
};

}  // namespace headrace::server::source
