// The description of one named field of a batch: element type, shape of a row, dense or ragged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

/// Element types. The numbers are part of ring layout v1: never renumber.
enum class DType : std::uint8_t {
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBFloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
  kBool = 10,
};

std::size_t size_of(DType dtype);
/// numpy's names: "uint8", "float32", ...; "bfloat16" as torch and ml_dtypes call it.
std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

/// The numbers are part of ring layout v1.
enum class FieldKind : std::uint8_t {
  kDense = 1,   ///< every row has `shape`
  kRagged = 2,  ///< values of all rows end to end, and rows + 1 offsets, which count values (not bytes)
};

struct FieldSpec {
  std::string name;  ///< 1 to 47 bytes of [a-z0-9_]
  DType dtype = DType::kUInt8;
  FieldKind kind = FieldKind::kDense;
  std::vector<std::int64_t> shape;   ///< of one row, without the batch dimension; at most 6 dimensions.
                                     ///< Ragged: the trailing shape of one value (empty for scalars)
  std::int64_t ragged_capacity = 0;  ///< ragged only: values that fit into one batch

  friend bool operator==(const FieldSpec&, const FieldSpec&) = default;
};

/// Bytes of one row (dense) or of one value (ragged).
std::size_t row_bytes(const FieldSpec& field);

}  // namespace headrace
