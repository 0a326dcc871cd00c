// What is wrong in many places at once: the first few in words, the others as a number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

class Problems {
 public:
  explicit Problems(std::size_t shown = 10) : shown_(shown) {}

  void add(std::string problem);
  /// Those of one file in the order of its lines, however they come.
  void add(const std::filesystem::path& file, std::uint64_t line, std::string_view problem);
  /// `later` comes after what is here.
  void merge(Problems&& later);
  [[nodiscard]] bool none() const { return first_.empty(); }
  /// A problem a line, then "and N more".
  [[nodiscard]] Error error(ErrorCode code) const;

 private:
  struct Problem {
    std::string file;  ///< empty: of none
    std::uint64_t line = 0;
    std::string text;
  };
  std::size_t shown_;
  std::uint64_t more_ = 0;
  std::vector<Problem> first_;
};

}  // namespace headrace::server::source
