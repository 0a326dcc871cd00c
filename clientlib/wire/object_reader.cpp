#include "clientlib/wire/object_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::wire {

ObjectReader::ObjectReader(const nlohmann::json& found, std::string_view what) : json_(found), what_(what) {
  if (!found.is_object())
    error_ = Error{ErrorCode::kBadMessage, fmt::format("{}: not an object but {}", what, found.type_name())};
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
  const auto* found = member(name, true);
  if (found == nullptr) return *this;
  if (!found->is_string()) {
    refuse(name, fmt::format("is not a string but {}", found->type_name()));
    return *this;
  }
  const auto& value = found->get_ref<const std::string&>();
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
  const auto* found = member(name, true);
  if (found == nullptr) return *this;
  if (found->is_boolean())
    out = found->get<bool>();
  else
    refuse(name, fmt::format("is not a boolean but {}", found->type_name()));
  return *this;
}

std::optional<std::uint64_t> ObjectReader::unsigned_member(std::string_view name, std::uint64_t most) {
  const auto* found = member(name, true);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number_integer()) {
    refuse(name, fmt::format("is not an integer but {}", found->type_name()));
    return std::nullopt;
  }
  const bool negative = !found->is_number_unsigned() && found->get<std::int64_t>() < 0;
  if (negative || found->get<std::uint64_t>() > most) {
    refuse(name, fmt::format("is {}, outside of 0 to {}", found->dump(), most));
    return std::nullopt;
  }
  return found->get<std::uint64_t>();
}

ObjectReader& ObjectReader::signed_integer(std::string_view name, std::int64_t& out) {
  const auto* found = member(name, true);
  if (found == nullptr) return *this;
  const bool fits =
      found->is_number_integer() && !(found->is_number_unsigned() &&
                                      found->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max());
  if (fits)
    out = found->get<std::int64_t>();
  else
    refuse(name, "is not a 64-bit integer");
  return *this;
}

bool ObjectReader::check_list(std::string_view name, const nlohmann::json& found, std::size_t most) {
  if (!found.is_array())
    refuse(name, fmt::format("is not a list but {}", found.type_name()));
  else if (found.size() > most)
    refuse(name, fmt::format("has {} entries, at most {} are allowed", found.size(), most));
  return !error_;
}

}  // namespace headrace::wire
