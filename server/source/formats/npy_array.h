// Arrays saved by numpy: .npy files, and .npz files with several arrays.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "headrace/field.h"
#include "server/source/files/mapped_file.h"

namespace headrace::server::source {

struct NpyHeader {
  DType dtype = DType::kUInt8;
  std::vector<std::uint64_t> shape;
  std::uint64_t data_offset = 0;  ///< offset of the values
  std::uint64_t data_bytes = 0;   ///< size by dtype and shape
};

struct NpyArray {
  std::string name;   ///< in its .npz; for a .npy file, its stem
  std::string shown;  ///< for messages: "/data/set.npz, array \"x\""
  NpyHeader header;
  MappedBytes values;  ///< in C order; empty if only headers were requested
};

/// `bytes` holds at least the whole header. kDatasetInvalid (the message names the numpy call that fixes it):
/// not .npy, versions above 3.0, a header that is not a dict of descr, fortran_order and shape, big-endian,
/// Fortran order, objects, dtypes that no field supports, sizes beyond 64 bits. `shown` begins each message.
Result<NpyHeader> parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& shown);

/// Maps the file. Also kDatasetInvalid if the file's size differs from what its header says.
Result<NpyArray> open_npy(const std::filesystem::path& path, const RemotePtr& remote = {});

enum class NpzLoad : std::uint8_t { kWhole, kHeaders };

/// The arrays of these names (all if the list is empty), in the file's order. Uncompressed arrays are mapped;
/// compressed arrays are decompressed into memory. A header whose size the file is too small to hold is
/// refused. kDatasetInvalid: not .npz, damaged, a missing array (lists the existing ones), encrypted, and
/// what open_npy() refuses.
Result<std::vector<NpyArray>> open_npz(const std::filesystem::path& path,
                                       const std::vector<std::string>& names, NpzLoad load = NpzLoad::kWhole,
                                       const RemotePtr& remote = {});

/// True for uint8, int8, int16, int32 and int64.
bool is_integer(DType dtype);
/// In numpy's notation: "(70, 28, 28)".
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace headrace::server::source
