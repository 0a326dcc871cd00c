#include "server/remote/content_range.h"

#include <charconv>

namespace headrace::server::remote {
namespace {

/// Parses and removes a number at the beginning of `text`.
bool take(std::string_view& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view sign) {
  if (!text.starts_with(sign)) return false;
  text.remove_prefix(sign.size());
  return true;
}

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view text) {
  ContentRange out;
  if (!take(text, "bytes ")) return std::nullopt;
  if (!take(text, "*") &&
      !(take(text, out.first) && take(text, "-") && take(text, out.last) && out.first <= out.last))
    return std::nullopt;
  if (!take(text, "/")) return std::nullopt;
  if (take(text, "*")) return text.empty() ? std::optional(out) : std::nullopt;
  std::uint64_t total = 0;
  if (!take(text, total) || !text.empty()) return std::nullopt;
  out.total = total;
  return out;
}

}  // namespace headrace::server::remote
