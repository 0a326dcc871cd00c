#include "server/config/document.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::server::config {

Document::Document(std::string name) : name_(std::move(name)) {
  places_[""] = {{name_, 1, 1}, {name_, 1, 1}};
}

const Places& Document::nearest(Pointer pointer) const {
  while (true) {
    if (const auto found = places_.find(pointer.to_string()); found != places_.end()) return found->second;
    pointer = pointer.parent_pointer();
  }
}

Place Document::value_place(const Pointer& pointer) const {
  return nearest(pointer).value;
}
Place Document::key_place(const Pointer& pointer) const {
  return nearest(pointer).key;
}

void Document::put(const Pointer& pointer, Places places) {
  places_[pointer.to_string()] = std::move(places);
}

void Document::put_override(const Pointer& pointer, const std::string& origin) {
  const std::string below = pointer.to_string() + "/";
  std::erase_if(places_, [&](const auto& entry) { return entry.first.starts_with(below); });
  const Place outside{origin, 0, 0};
  put(pointer, {outside, outside});
}

Problem Document::at_value(const Pointer& pointer, std::string message, std::string suggestion) const {
  const auto place = value_place(pointer);
  return {place.file, place.line, place.column, dotted(pointer), std::move(message), std::move(suggestion)};
}

Problem Document::at_key(const Pointer& pointer, std::string message, std::string suggestion) const {
  const auto place = key_place(pointer);
  return {place.file, place.line, place.column, dotted(pointer), std::move(message), std::move(suggestion)};
}

std::string to_string(const Place& place) {
  return place.line > 0 ? fmt::format("{}:{}:{}", place.file, place.line, place.column) : place.file;
}

std::string dotted(const Pointer& pointer) {
  std::vector<std::string> names;
  for (Pointer p = pointer; !p.empty(); p = p.parent_pointer()) names.push_back(p.back());
  std::reverse(names.begin(), names.end());
  std::string out;
  for (const auto& name : names) {
    const bool index = std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (index && !name.empty()) {
      out += "[" + name + "]";
    } else {
      out += (out.empty() ? "" : ".") + name;
    }
  }
  return out;
}

}  // namespace headrace::server::config
