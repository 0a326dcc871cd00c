#include "clientlib/wire/object_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::wire {

ObjectReader::ObjectReader(const nlohmann::json& json, std::string_view what) : json_(json), what_(what) {
  if (!json.is_object())
    error_ = Error{ErrorCode::kBadMessage, fmt::format("{}: not an object but {}", what, json.type_name())};
}

void ObjectReader::refuse(std::string_view name, std::string_view problem) {
  if (!error_)
    error_ = Error{ErrorCode::kBadMessage, fmt::format("{}: member '{}' {}", what_, name, problem)};
}

void ObjectReader::keep(Result<void> inner) {
  if (!inner && !error_) error_ = inner.error();
}

Result<void> ObjectReader::done() const {
  if (error_) return fail(*error_);
  return {};
}

const nlohmann::json* ObjectReader::member(std::string_view name, bool required) {
  if (error_) return nullptr;
  const auto found = json_.find(name);
  if (found != json_.end()) return &*found;
  if (required) refuse(name, "is missing");
  return nullptr;
}

ObjectReader& ObjectReader::text(std::string_view name, std::string& out, std::size_t longest) {
  const auto* json = member(name, true);
  if (json == nullptr) return *this;
  if (!json->is_string()) {
    refuse(name, fmt::format("is not a string but {}", json->type_name()));
    return *this;
  }
  const auto& value = json->get_ref<const std::string&>();
  if (value.size() > longest)
    refuse(name, fmt::format("has {} bytes, at most {} are allowed", value.size(), longest));
  else
    out = value;
  return *this;
}

ObjectReader& ObjectReader::name(std::string_view name, std::string& out) {
  std::string value;
  text(name, value, kMaxName);
  if (error_) return *this;
  const bool printable = std::all_of(
      value.begin(), value.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; });
  if (printable)
    out = std::move(value);
  else
    refuse(name, "holds control characters");
  return *this;
}

ObjectReader& ObjectReader::flag(std::string_view name, bool& out) {
  const auto* json = member(name, true);
  if (json == nullptr) return *this;
  if (json->is_boolean())
    out = json->get<bool>();
  else
    refuse(name, fmt::format("is not a boolean but {}", json->type_name()));
  return *this;
}

std::optional<std::uint64_t> ObjectReader::unsigned_member(std::string_view name, std::uint64_t most) {
  const auto* json = member(name, true);
  if (json == nullptr) return std::nullopt;
  if (!json->is_number_integer()) {
    refuse(name, fmt::format("is not an integer but {}", json->type_name()));
    return std::nullopt;
  }
  const bool negative = !json->is_number_unsigned() && json->get<std::int64_t>() < 0;
  if (negative || json->get<std::uint64_t>() > most) {
    refuse(name, fmt::format("is {}, outside of 0 to {}", json->dump(), most));
    return std::nullopt;
  }
  return json->get<std::uint64_t>();
}

ObjectReader& ObjectReader::signed_integer(std::string_view name, std::int64_t& out) {
  const auto* json = member(name, true);
  if (json == nullptr) return *this;
  const bool fits =
      json->is_number_integer() &&
      !(json->is_number_unsigned() && json->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max());
  if (fits)
    out = json->get<std::int64_t>();
  else
    refuse(name, "is not a 64-bit integer");
  return *this;
}

bool ObjectReader::check_list(std::string_view name, const nlohmann::json& json, std::size_t most) {
  if (!json.is_array())
    refuse(name, fmt::format("is not a list but {}", json.type_name()));
  else if (json.size() > most)
    refuse(name, fmt::format("has {} entries, at most {} are allowed", json.size(), most));
  return !error_;
}

}  // namespace headrace::wire
