#include "server/described/codec.h"

namespace headrace::server::described {
namespace {

/// Without ".0", as messages show it.
Schema bound(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? Schema(whole) : Schema(value);
}

}  // namespace

Codec<double> number(std::optional<double> least, std::optional<double> most) {
  Schema schema{{"type", "number"}};
  if (least) schema["minimum"] = bound(*least);
  if (most) schema["maximum"] = bound(*most);
  return plain<double>(std::move(schema));
}

Codec<double> number_above(double least, std::optional<double> most) {
  Schema schema{{"type", "number"}, {"exclusiveMinimum", bound(least)}};
  if (most) schema["maximum"] = bound(*most);
  return plain<double>(std::move(schema));
}

Codec<std::string> text(const char* pattern, const char* what) {
  return expecting(what, plain<std::string>({{"type", "string"}, {"pattern", pattern}}));
}

Codec<std::string> text() {
  return plain<std::string>({{"type", "string"}, {"minLength", 1}});
}

}  // namespace headrace::server::described
