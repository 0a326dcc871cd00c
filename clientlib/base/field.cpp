#include "headrace/field.h"

#include <array>

namespace headrace {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t size;
};
constexpr std::array kTypes = {
    Row{DType::kUInt8, "uint8", 1},       Row{DType::kInt8, "int8", 1},
    Row{DType::kInt16, "int16", 2},       Row{DType::kInt32, "int32", 4},
    Row{DType::kInt64, "int64", 8},       Row{DType::kFloat16, "float16", 2},
    Row{DType::kBFloat16, "bfloat16", 2}, Row{DType::kFloat32, "float32", 4},
    Row{DType::kFloat64, "float64", 8},   Row{DType::kBool, "bool", 1},
};

}  // namespace

std::size_t size_of(DType dtype) {
  for (const Row& row : kTypes)
    if (row.dtype == dtype) return row.size;
  return 0;
}

std::string_view name_of(DType dtype) {
  for (const Row& row : kTypes)
    if (row.dtype == dtype) return row.name;
  return "unknown";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

std::size_t row_bytes(const FieldSpec& field) {
  std::size_t bytes = size_of(field.dtype);
  for (const std::int64_t dim : field.shape) bytes *= static_cast<std::size_t>(dim);
  return bytes;
}

}  // namespace headrace
