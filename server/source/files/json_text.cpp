#include "server/source/files/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace headrace::server::source {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestShown = 200;

}  // namespace

json parse_json(std::string_view text) {
  const auto opening = std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; });
  if (opening <= kMostNesting) return json::parse(text.begin(), text.end(), nullptr, false);
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    too_deep = too_deep || (opens && depth >= kMostNesting);
    return !too_deep;
  };
  json value = json::parse(text.begin(), text.end(), bound_depth, false);
  return too_deep ? json(json::value_t::discarded) : value;
}

std::string shown_json(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= kLongestShown) return text;
  std::size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

}  // namespace headrace::server::source
