#include "server/config/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

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
  overrides_.emplace_back(pointer, origin);
}

void Document::put_inherited(const Pointer& from, const Pointer& to) {
  put(to, nearest(from));
  const std::string above = from.to_string(), below = above + "/";
  std::vector<std::pair<std::string, Places>> found;  // first, because `to` may be below `from`
  for (auto each = places_.lower_bound(below); each != places_.end() && each->first.starts_with(below);
       ++each)
    found.emplace_back(to.to_string() + each->first.substr(above.size()), each->second);
  for (auto& [pointer, places] : found) places_.insert_or_assign(pointer, places);
}

void Document::wrong(const Pointer& pointer, std::string message, std::string suggestion) {
  faults.add({pointer, false, std::move(message), std::move(suggestion)});
}

void Document::wrong_key(const Pointer& pointer, std::string message, std::string suggestion) {
  faults.add({pointer, true, std::move(message), std::move(suggestion)});
}

namespace {

Problem problem_at(const Place& place, const Pointer& pointer, std::string message, std::string suggestion) {
  return {place.file, place.line, place.column, dotted(pointer), std::move(message), std::move(suggestion)};
}

}  // namespace

void Document::wrong_at(const Place& place, const Pointer& pointer, std::string message,
                        std::string suggestion) {
  if (!pointer.empty()) faults.mark(pointer);
  elsewhere_.push_back(problem_at(place, pointer, std::move(message), std::move(suggestion)));
}

std::string Document::overrides_near(const Pointer& pointer) const {
  // The part of a path that names one source, one stream or the server.
  const auto entry = [](Pointer p) {
    std::string inner;
    for (; !p.empty() && !p.parent_pointer().empty(); p = p.parent_pointer()) inner = p.back();
    const std::string top = p.empty() ? "" : p.back();
    return top == "server" ? std::pair(top, std::string()) : std::pair(top, inner);
  };
  std::vector<std::string> origins;
  for (const auto& [at, origin] : overrides_)
    if (entry(at) == entry(pointer)) origins.push_back(origin);
  return fmt::format("{}", fmt::join(origins, ", "));
}

std::vector<Problem> Document::problems() const {
  std::vector<Problem> out = elsewhere_;
  std::set<std::tuple<int, int, std::string>> reported;
  for (const auto& fault : faults.all()) {
    const Place place = fault.at_key ? key_place(fault.at) : value_place(fault.at);
    // An inherited problem is reported once.
    if (place.line > 0 && !reported.emplace(place.line, place.column, fault.message).second) continue;
    std::string message = fault.message;
    // The file alone may be right: the cause may be what was set from outside.
    if (const std::string origins = overrides_near(fault.at); place.line > 0 && !origins.empty())
      message += fmt::format(" (overrides in effect: {})", origins);
    out.push_back(problem_at(place, fault.at, std::move(message), fault.suggestion));
  }
  std::stable_sort(out.begin(), out.end(), [](const Problem& a, const Problem& b) {
    return std::tuple(a.line == 0, a.line, a.column) < std::tuple(b.line == 0, b.line, b.column);
  });
  return out;
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
