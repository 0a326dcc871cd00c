#include "server/source/problems.h"

#include <fmt/format.h>

#include <utility>

namespace headrace::server::source {

tl::unexpected<Error> refuse(std::string_view shown, std::string_view what) {
  return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", shown, what));
}

void Problems::add(std::string problem) {
  if (first_.size() < kShown) {
    first_.push_back({{}, 0, std::move(problem)});
  } else {
    ++more_;
  }
}

void Problems::add(const std::filesystem::path& file, std::uint64_t line, std::string_view problem) {
  std::string name = file.string();
  auto at = first_.end();
  while (at != first_.begin() && (at - 1)->file == name && (at - 1)->line > line) --at;
  if (at == first_.end() && first_.size() == kShown) {
    ++more_;
    return;
  }
  auto text = fmt::format("{}:{}: {}", name, line, problem);
  first_.insert(at, {std::move(name), line, std::move(text)});
  if (first_.size() <= kShown) return;
  first_.pop_back();
  ++more_;
}

void Problems::merge(Problems&& later) {
  for (Problem& problem : later.first_) add(std::move(problem.text));
  more_ += later.more_;
}

Error Problems::error(ErrorCode code) const {
  std::string text;
  for (const Problem& problem : first_) text += (text.empty() ? "" : "\n") + problem.text;
  if (more_ > 0) text += fmt::format("\nand {} more", more_);
  return {code, std::move(text)};
}

}  // namespace headrace::server::source
