#include "server/store/field_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace headrace::server::store {
namespace {

using nlohmann::json;
using sample::Content;
using sample::SourceField;

constexpr std::array<std::string_view, 4> kContents = {"encoded_image", "pixels", "values", "ragged"};
constexpr std::size_t kMostDims = 6;
constexpr std::size_t kLongestName = 47;

bool is_side(std::int32_t value, std::int32_t least) {
  return value >= least && value <= static_cast<std::int32_t>(decode::kMaxSide);
}

/// nullptr: the field is valid.
const char* wrong_with(const SourceField& field) {
  if (field.name.empty() || field.name.size() > kLongestName) return "its name has 1 to 47 bytes";
  if (field.channels != 1 && field.channels != 3) return "images have 1 or 3 channels";
  if (!is_side(field.height, 0) || !is_side(field.width, 0) || (field.height == 0) != (field.width == 0))
    return "height and width must be 1 to 65535, or both 0 if they differ";
  if (!is_side(field.scale, 1)) return "its scale must be at least 1";
  if (field.shape.size() > kMostDims) return "a shape has at most 6 dimensions";
  std::int64_t bytes = 1;
  for (const std::int64_t dim : field.shape)
    if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes) || bytes > std::int64_t{1} << 40)
      return "its shape is too large";
  return nullptr;
}

}  // namespace

json parse_description(std::string_view text) {
  return json::parse(text.begin(), text.end(), [](int, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::value && value.is_number_float())
      throw std::invalid_argument(fmt::format("found {}, expected a 64-bit integer", value.dump()));
    return true;
  });
}

json to_json(const SourceField& field) {
  return {{"name", field.name},         {"content", kContents.at(static_cast<std::size_t>(field.content))},
          {"channels", field.channels}, {"height", field.height},
          {"width", field.width},       {"scale", field.scale},
          {"mask", field.mask},         {"dtype", headrace::name_of(field.dtype)},
          {"shape", field.shape}};
}

Result<SourceField> field_from_json(const json& value) try {
  SourceField field;
  field.name = value.at("name").get<std::string>();
  const auto refuse = [&field](std::string_view why) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("field `{}`: {}", field.name, why));
  };
  const auto name = value.at("content").get<std::string>();
  const auto content = std::find(kContents.begin(), kContents.end(), name);
  if (content == kContents.end())
    return refuse(
        fmt::format("expected content to be one of {1}, found `{0}`", name, fmt::join(kContents, ", ")));
  field.content = static_cast<Content>(content - kContents.begin());
  const auto dtype = dtype_from_name(value.value("dtype", std::string(headrace::name_of(field.dtype))));
  if (!dtype) return refuse("its dtype is not one that a batch can have");
  field.dtype = *dtype;
  field.channels = value.value("channels", field.channels);
  field.height = value.value("height", field.height);
  field.width = value.value("width", field.width);
  field.scale = value.value("scale", field.scale);
  field.mask = value.value("mask", field.mask);
  field.shape = value.value("shape", field.shape);
  if (const char* wrong = wrong_with(field)) return refuse(wrong);
  return field;
} catch (const json::exception& error) {
  return fail(ErrorCode::kDatasetInvalid, fmt::format("invalid description of a field: {}", error.what()));
}

}  // namespace headrace::server::store
