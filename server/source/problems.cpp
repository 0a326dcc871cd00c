#include "server/source/problems.h"

#include <fmt/format.h>

#include <utility>

namespace headrace::server::source {

void Problems::add(std::string problem) {
  if (first_.size() < shown_) {
    first_.push_back(std::move(problem));
  } else {
    ++more_;
  }
}

void Problems::add(const std::filesystem::path& file, std::uint64_t line, std::string_view problem) {
  add(fmt::format("{}:{}: {}", file.string(), line, problem));
}

void Problems::merge(Problems&& later) {
  for (std::string& problem : later.first_) add(std::move(problem));
  more_ += later.more_;
}

Error Problems::error(ErrorCode code) const {
  auto text = fmt::format("{}", fmt::join(first_, "\n"));
  if (more_ > 0) text += fmt::format("\nand {} more", more_);
  return {code, std::move(text)};
}

}  // namespace headrace::server::source
