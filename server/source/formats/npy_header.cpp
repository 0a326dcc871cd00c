#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <string_view>

#include "server/source/formats/npy_array.h"

namespace headrace::server::source {
namespace {

constexpr std::array<std::uint8_t, 6> kNpyMagic{0x93, 'N', 'U', 'M', 'P', 'Y'};
/// numpy's own headers are 128 bytes up to a dozen dimensions; std::regex uses stack in proportion to the
/// length.
constexpr std::size_t kLongestHeader = 2048;
constexpr std::size_t kNumpyDimensions = 32;  // numpy's own limit

/// `kind`: the part of `descr` after the byte order.
std::optional<DType> dtype_of(std::string_view kind) {
  static constexpr std::array<std::pair<std::string_view, DType>, 9> kKnown{{{"u1", DType::kUInt8},
                                                                             {"i1", DType::kInt8},
                                                                             {"i2", DType::kInt16},
                                                                             {"i4", DType::kInt32},
                                                                             {"i8", DType::kInt64},
                                                                             {"f2", DType::kFloat16},
                                                                             {"f4", DType::kFloat32},
                                                                             {"f8", DType::kFloat64},
                                                                             {"b1", DType::kBool}}};
  const auto* const known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const auto& pair) { return pair.first == kind; });
  return known == kKnown.end() ? std::nullopt : std::optional(known->second);
}

Result<DType> read_dtype(const std::string& descr, const std::string& shown) {
  const auto refuse = [&shown](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", shown, what));
  };
  if (descr.size() < 2 || std::string_view("<>|=").find(descr[0]) == std::string_view::npos)
    return refuse(fmt::format("dtype \"{}\" is not understood; save it again with numpy", descr));
  const std::string_view kind = std::string_view(descr).substr(1);
  if (kind[0] == 'O')
    return refuse(
        "holds Python objects (pickled), which are not read; give it a number for a dtype, such as "
        "np.stack(array) or array.astype(np.float32), and save it again");
  const auto dtype = dtype_of(kind);
  if (!dtype)
    return refuse(
        fmt::format("dtype \"{}\" is not supported; convert it with array.astype() to one of uint8, "
                    "int8, int16, int32, int64, float16, float32, float64, bool, and save it again",
                    descr));
  if (descr[0] == '>' && size_of(*dtype) > 1)
    return refuse(fmt::format(
        "is big-endian (\"{}\"); save array.astype(array.dtype.newbyteorder('<')) instead", descr));
  return *dtype;
}

}  // namespace

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return true;
    default:
      return false;
  }
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

Result<NpyHeader> parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& shown) {
  const auto refuse = [&shown](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", shown, what));
  };
  if (bytes.size() < 10 || !std::equal(kNpyMagic.begin(), kNpyMagic.end(), bytes.begin()))
    return refuse("is not an .npy file (it does not begin with \\x93NUMPY)");
  const int version = bytes[6];
  if (version < 1 || version > 3 || bytes[7] != 0)
    return refuse(fmt::format("is of .npy version {}.{}; 1.0, 2.0 and 3.0 are read: save it again with numpy",
                              version, bytes[7]));
  const std::size_t prefix = version == 1 ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = prefix; i-- > 8;) length = length << 8 | (i < bytes.size() ? bytes[i] : 0);
  if (length > kLongestHeader)
    return refuse(
        fmt::format("has a header of {} bytes, more than {}: is it an array of records? Save its "
                    "columns one by one",
                    length, kLongestHeader));
  if (bytes.size() < prefix + length) return refuse("is truncated within its header; fetch it again");
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + prefix, length);

  static const std::regex kDict(R"(\s*\{[\s\S]*\}\s*)");
  static const std::regex kDescr(R"(['"]descr['"]\s*:\s*['"]([^'"]*)['"])");
  static const std::regex kOrder(R"(['"]fortran_order['"]\s*:\s*(True|False))");
  static const std::regex kShape(R"(['"]shape['"]\s*:\s*\(([0-9,\s]*)\))");
  std::smatch descr, order, shape;
  if (!std::regex_match(text, kDict) || !std::regex_search(text, order, kOrder) ||
      !std::regex_search(text, shape, kShape))
    return refuse("has a header that is no dict of descr, fortran_order and shape; save it again with numpy");
  if (!std::regex_search(text, descr, kDescr))
    return refuse("is an array of records (a dtype with fields); save its columns one by one");

  NpyHeader header;
  auto dtype = read_dtype(descr[1], shown);
  if (!dtype) return fail(std::move(dtype.error()));
  header.dtype = *dtype;
  header.data_offset = prefix + length;
  header.data_bytes = size_of(header.dtype);
  static const std::regex kNumber("[0-9]+");
  const std::string dims = shape[1];
  for (std::sregex_iterator dim(dims.begin(), dims.end(), kNumber), end; dim != end; ++dim) {
    const bool fits = dim->length() <= 18 && header.shape.size() < kNumpyDimensions;
    header.shape.push_back(fits ? std::stoull(dim->str()) : 0);
    if (!fits || __builtin_mul_overflow(header.data_bytes, header.shape.back(), &header.data_bytes))
      return refuse("its header's shape is invalid");
  }
  if (order[1] == "True" && header.shape.size() > 1)
    return refuse("is in Fortran order; save np.ascontiguousarray(array) instead");
  return header;
}

}  // namespace headrace::server::source
