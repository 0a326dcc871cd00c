// Problems of a dataset: one, or many similar ones, of which the first few have their text and the rest a
// count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

/// kDatasetInvalid: "SHOWN: WHAT". `shown`: a path, or what remote::shown() makes of a URL.
tl::unexpected<Error> refuse(std::string_view shown, std::string_view what);

class Problems {
 public:
  static constexpr std::size_t kShown = 20;  ///< the others are only counted

  void add(std::string problem);
  /// Problems of one file are kept in the order of its lines, in whatever order they are added.
  void add(const std::filesystem::path& file, std::uint64_t line, std::string_view problem);
  /// Appends `later`'s problems to these.
  void merge(Problems&& later);
  [[nodiscard]] bool none() const { return first_.empty(); }
  /// One problem per line, then "and N more".
  [[nodiscard]] Error error(ErrorCode code) const;

 private:
  struct Problem {
    std::string file;  ///< empty: the problem concerns no file
    std::uint64_t line = 0;
    std::string text;
  };
  std::uint64_t more_ = 0;
  std::vector<Problem> first_;
};

}  // namespace headrace::server::source
