// The configuration of sources that are made of other sources.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "server/source/combine/relabel.h"
#include "server/source/combine/zip.h"

namespace headrace::server::config {

// A split names disjoint parts of a source. Each map is part -> what belongs to it; see
// server/source/combine/split.h.
struct SplitFractions {
  std::map<std::string, double> parts;  ///< each in (0, 1], sum <= 1
};
struct SplitClasses {
  std::map<std::string, std::vector<std::string>> parts;
};
struct SplitLists {
  std::map<std::string, std::filesystem::path> parts;  ///< files of relative paths, one a line; absolute
};
struct SplitConfig {
  std::uint64_t seed = 0;  ///< of fractions
  std::variant<SplitFractions, SplitClasses, SplitLists> by;

  [[nodiscard]] std::vector<std::string> part_names() const;  ///< sorted
};

/// "photos", or "photos.train" for a part of it.
struct SourceRef {
  std::string name;
  std::string part;  ///< empty: the whole

  static SourceRef of(const std::string& text);
  [[nodiscard]] std::string text() const { return part.empty() ? name : name + "." + part; }
};

struct ConcatSource {
  std::vector<SourceRef> of;
};
struct FirstSamples {
  std::uint64_t count = 0;
};
struct IndexFile {
  std::filesystem::path path;  ///< absolute
};
struct SubsetSource {
  std::vector<SourceRef> of;                              ///< one
  std::variant<FirstSamples, IndexFile, SplitConfig> by;  ///< a split: of one part, called ""
};
struct RepeatSource {
  std::vector<SourceRef> of;  ///< one
  std::uint64_t times = 1;
};
struct ZipSource {
  std::vector<SourceRef> of;
  source::ZipOptions options;
};
struct RelabelSource {
  std::vector<SourceRef> of;  ///< one
  source::RelabelOptions options;
};

/// Of values that the schema holds good.
std::vector<SourceRef> read_refs(const nlohmann::json& of);
SubsetSource read_subset(const nlohmann::json& value, const std::filesystem::path& folder);
ZipSource read_zip(const nlohmann::json& value);
RelabelSource read_relabel(const nlohmann::json& value);
SplitConfig read_split(const nlohmann::json& value, const std::filesystem::path& folder);

}  // namespace headrace::server::config
