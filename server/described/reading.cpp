#include "server/described/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace::server::described {

std::string as_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Faults::add(Fault fault) {
  mark(fault.at);
  all_.push_back(std::move(fault));
}

void Faults::mark(const Pointer& at) {
  wrong_.insert(at.to_string());
}

bool Faults::sound(const Pointer& at) const {
  const std::string own = at.to_string(), inside = own + "/";
  const auto below = wrong_.lower_bound(inside);
  return !wrong_.contains(own) && (below == wrong_.end() || !below->starts_with(inside));
}

bool Reading::sound(std::initializer_list<const char*> keys) const {
  return faults_ == nullptr ||
         std::all_of(keys.begin(), keys.end(), [&](const char* key) { return faults_->sound(at_ / key); });
}

namespace {

Pointer pointer(const std::string& below) {
  return below.empty() ? Pointer() : Pointer("/" + below);
}

}  // namespace

void Reading::wrong(const std::string& below, std::string message, std::string suggestion) const {
  add(pointer(below), false, std::move(message), std::move(suggestion));
}

void Reading::wrong_key(const std::string& below, std::string message, std::string suggestion) const {
  add(pointer(below), true, std::move(message), std::move(suggestion));
}

void Reading::wrong(const Pointer& below, std::string message, std::string suggestion) const {
  add(below, false, std::move(message), std::move(suggestion));
}

void Reading::wrong_key(const Pointer& below, std::string message, std::string suggestion) const {
  add(below, true, std::move(message), std::move(suggestion));
}

void Reading::add(const Pointer& below, bool at_key, std::string message, std::string suggestion) const {
  if (faults_ != nullptr) faults_->add({at_ / below, at_key, std::move(message), std::move(suggestion)});
}

void Reading::add_data(const std::string& text) const {
  if (data_ != nullptr) data_->push_back({at_, text});
}

bool check_one_of(const Json& map, std::initializer_list<const char*> ways, const char* all,
                  const Reading& reading) {
  std::vector<std::string> given;
  for (const char* way : ways)
    if (map.contains(way)) given.emplace_back(way);
  if (given.size() == 1) return true;
  reading.wrong_key("", given.empty()
                            ? fmt::format("needs {}", all)
                            : fmt::format("has {}; it takes one of them", fmt::join(given, " and ")));
  return false;
}

}  // namespace headrace::server::described
