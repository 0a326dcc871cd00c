// Parts of one source: several that are named and disjoint by construction (training and validation data from
// one folder), or a single one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "server/described/codec.h"
#include "server/source/combine/forwarding.h"

namespace headrace::server::source {

// Each map's key is the part, its value the part's content.

/// Each fraction is in (0, 1], their sum at most 1. A keyed permutation of all samples is cut at the rounded
/// cumulative sums (parts in the order of their names), so sizes are exact to one sample; if the sum is 1,
/// every sample is in a part.
struct SplitFractions {
  std::map<std::string, double> parts;
  std::uint64_t seed = 0;
};
/// Chosen by class names.
struct SplitClasses {
  std::map<std::string, std::vector<std::string>> parts;
};
/// Text files of relative paths, one per line; empty lines and a leading "./" are ignored.
struct SplitLists {
  std::map<std::string, std::filesystem::path> parts;
};
using Split = std::variant<SplitFractions, SplitClasses, SplitLists>;

std::vector<std::string> part_names(const Split& split);  ///< sorted
/// Requires exactly one of fractions, classes and lists, which a schema cannot express.
described::Codec<Split> split_codec();

/// A view of some samples of a source, in the source's order. Labels, class names and whole_index() are the
/// source's; fingerprint() covers the source and the choice.
class Part final : public ForwardingSource {
 public:
  /// `indices`: ascending, without repeats, below whole->size().
  Part(std::shared_ptr<const Source> whole, std::vector<std::uint64_t> indices);

  [[nodiscard]] std::uint64_t size() const override { return indices_.size(); }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    return real().read(indices_.at(index), out);
  }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override {
    return real().read_fields(indices_.at(index), wanted, out);
  }
  bool view_samples(SampleView& view) const override;
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override {
    return real().whole_index(indices_.at(index));
  }
  [[nodiscard]] const Source& whole() const override { return real().whole(); }
  [[nodiscard]] std::uint64_t index_in_whole(std::uint64_t index) const override {
    return real().index_in_whole(indices_.at(index));
  }
  [[nodiscard]] std::uint64_t index_in_distinct(std::uint64_t index) const override {
    return real().index_in_distinct(indices_.at(index));
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    return real().label(indices_.at(index));
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    return real().name(indices_.at(index));
  }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::string warning() const override { return {}; }  // already reported for the whole

 private:
  std::vector<std::uint64_t> indices_;
  std::uint64_t fingerprint_;
};

using Parts = std::map<std::string, std::shared_ptr<const Source>>;

/// kConfigInvalid: fractions out of range, a class that is unknown or in two parts, an unreadable list, or a
/// path in it that is unknown or was listed before (with file:line, up to ten). kDatasetInvalid: a part
/// without samples.
Result<Parts> split(const std::shared_ptr<const Source>& whole, const Split& how);

/// A single part; `how` has it under the empty name. Errors: as split().
Result<std::shared_ptr<const Source>> subset(const std::shared_ptr<const Source>& whole, const Split& how);
/// kConfigInvalid: `count` is 0 or more than there are.
Result<std::shared_ptr<const Source>> first_samples(const std::shared_ptr<const Source>& whole,
                                                    std::uint64_t count);
/// Reads a file with one index per line, as batches report them, in any order. kConfigInvalid: wrong lines
/// (see sample_list.h), a repeated index.
Result<std::shared_ptr<const Source>> listed_samples(const std::shared_ptr<const Source>& whole,
                                                     const std::filesystem::path& file);

}  // namespace headrace::server::source
