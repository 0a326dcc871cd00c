#include "server/source/columns/value_columns.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/source/files/json_text.h"

namespace headrace::server::source {
namespace {

using nlohmann::json;

template <class T>
std::string append_as(const json& value, std::vector<std::uint8_t>& out) {
  T number{};
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean() && !(value.is_number_integer() && (value == 0 || value == 1)))
      return fmt::format("{} is neither true nor false", shown_json(value));
    number = value.is_boolean() ? value.get<bool>() : value == 1;
  } else if constexpr (std::is_integral_v<T>) {
    if (!value.is_number_integer()) return fmt::format("{} is not a whole number", shown_json(value));
    const bool above = value.is_number_unsigned() &&
                       value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    const bool below = !value.is_number_unsigned() &&
                       value.get<std::int64_t>() < static_cast<std::int64_t>(std::numeric_limits<T>::min());
    if (above || below)
      return fmt::format("{} is outside {} to {}", shown_json(value), std::numeric_limits<T>::min(),
                         std::numeric_limits<T>::max());
    number = value.get<T>();
  } else {
    if (!value.is_number()) return fmt::format("{} is not a number", shown_json(value));
    number = static_cast<T>(value.get<double>());
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&number);
  out.insert(out.end(), bytes, bytes + sizeof number);
  return {};
}

std::string append_one(const json& value, DType dtype, std::vector<std::uint8_t>& out) {
  switch (dtype) {
    case DType::kUInt8:
      return append_as<std::uint8_t>(value, out);
    case DType::kInt8:
      return append_as<std::int8_t>(value, out);
    case DType::kInt16:
      return append_as<std::int16_t>(value, out);
    case DType::kInt32:
      return append_as<std::int32_t>(value, out);
    case DType::kInt64:
      return append_as<std::int64_t>(value, out);
    case DType::kFloat32:
      return append_as<float>(value, out);
    case DType::kFloat64:
      return append_as<double>(value, out);
    case DType::kBool:
      return append_as<bool>(value, out);
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
  }
  return "half types are not read from text";
}

std::size_t bytes_of(const SourceField& field) {
  std::size_t bytes = size_of(field.dtype);
  for (const std::int64_t side : field.shape) bytes *= static_cast<std::size_t>(side);
  return bytes;
}

/// Reads the numbers of one row; `wrong_count` says what is wrong with their number. All or nothing.
template <class WrongCount>
std::string append_row(const json& value, DType dtype, std::vector<std::uint8_t>& out,
                       const WrongCount& wrong_count) {
  const std::size_t before = out.size();
  std::string wrong = append_numbers(value, dtype, out);
  if (wrong.empty()) wrong = wrong_count((out.size() - before) / size_of(dtype));
  if (!wrong.empty()) out.resize(before);
  return wrong;
}

}  // namespace

std::string append_numbers(const json& value, DType dtype, std::vector<std::uint8_t>& out) {
  if (value.is_string()) {
    const json parsed = parse_json(value.get_ref<const std::string&>());
    if (parsed.is_discarded() || parsed.is_string())
      return fmt::format("{} is neither a number nor a list of numbers", shown_json(value));
    return append_numbers(parsed, dtype, out);
  }
  if (!value.is_array()) return append_one(value, dtype, out);
  for (const json& element : value)
    if (auto wrong = append_numbers(element, dtype, out); !wrong.empty()) return wrong;
  return {};
}

FixedColumn::FixedColumn(SourceField field) : field_(std::move(field)), row_bytes_(bytes_of(field_)) {}

std::string FixedColumn::add(const json& value) {
  const std::size_t wanted = row_bytes_ / size_of(field_.dtype);
  return append_row(value, field_.dtype, values_, [wanted](std::size_t count) {
    return count == wanted ? "" : fmt::format("has {} numbers instead of {}", count, wanted);
  });
}

void FixedColumn::add_hot(const std::vector<std::size_t>& hot) {
  std::vector<int> row(row_bytes_ / size_of(field_.dtype));
  for (const std::size_t place : hot) row.at(place) = 1;
  for (const int value : row) static_cast<void>(append_one(value, field_.dtype, values_));
}

Result<void> FixedColumn::read(std::uint64_t row, Item& out) const {
  out.bytes = std::span(values_).subspan(row * row_bytes_, row_bytes_);
  return {};
}

RaggedColumn::RaggedColumn(SourceField field) : field_(std::move(field)), value_bytes_(bytes_of(field_)) {}

std::string RaggedColumn::add(const json& value) {
  const std::size_t each = value_bytes_ / size_of(field_.dtype);
  std::string wrong = append_row(value, field_.dtype, values_, [each](std::size_t count) {
    return count % each == 0 ? "" : fmt::format("has {} numbers, no multiple of {}", count, each);
  });
  if (wrong.empty()) end_row();
  return wrong;
}

void RaggedColumn::add_text(std::string_view text) {
  values_.insert(values_.end(), text.begin(), text.end());
  end_row();
}

void RaggedColumn::end_row() {
  const std::uint64_t begin = ends_.empty() ? 0 : ends_.back();
  ends_.push_back(values_.size());
  longest_ = std::max<std::uint64_t>(longest_, (values_.size() - begin) / value_bytes_);
}

Result<void> RaggedColumn::read(std::uint64_t row, Item& out) const {
  const std::uint64_t begin = row == 0 ? 0 : ends_.at(row - 1);
  out.bytes = std::span(values_).subspan(begin, ends_.at(row) - begin);
  return {};
}

void RaggedColumn::add_to(Fingerprint& fingerprint) const {
  fingerprint.add(std::span(values_));
  for (const std::uint64_t end : ends_) fingerprint.add(end);
}

}  // namespace headrace::server::source
