// Arrays as numpy saves them: .npy files, and .npz files of several.
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
  std::uint64_t data_offset = 0;  ///< where the values begin
  std::uint64_t data_bytes = 0;   ///< what dtype and shape need
};

struct NpyArray {
  std::string name;   ///< in its .npz; of a .npy file, its stem
  std::string shown;  ///< for messages: "/data/set.npz, array \"x\""
  NpyHeader header;
  MappedBytes values;  ///< in C order; none if only headers were asked for
};

/// Of a buffer that holds at least the whole header. kDatasetInvalid, with what to do in numpy: no .npy,
/// versions above 3.0, a header that is no dict of descr, fortran_order and shape, big-endian, Fortran order,
/// objects, dtypes that no field carries, sizes beyond 64 bits. `shown` begins each message.
Result<NpyHeader> parse_npy_header(std::span<const std::uint8_t> bytes, const std::string& shown);

/// Mapped. Also kDatasetInvalid if the file has not exactly the bytes that its header says.
Result<NpyArray> open_npy(const std::filesystem::path& path, const RemotePtr& remote = {});

enum class NpzLoad : std::uint8_t { kWhole, kHeaders };

/// The arrays of these names, all if there are none, in the file's order. Uncompressed ones are mapped,
/// compressed ones are unpacked into memory; how much is known from their headers, and refused if the file is
/// too small for it. kDatasetInvalid: no .npz, damaged, an array that is not there (with those that are),
/// encrypted, and what open_npy() refuses.
Result<std::vector<NpyArray>> open_npz(const std::filesystem::path& path,
                                       const std::vector<std::string>& names, NpzLoad load = NpzLoad::kWhole,
                                       const RemotePtr& remote = {});

/// uint8 and int8 to int64.
bool is_integer(DType dtype);
/// As numpy writes it: "(70, 28, 28)".
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace headrace::server::source
