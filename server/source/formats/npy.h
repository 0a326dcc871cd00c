// Datasets of numpy arrays: the first dimension of each array is the sample.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/source/formats/npy_array.h"
#include "server/source/source.h"

namespace headrace::server::source {

struct NpyOptions {
  std::map<std::string, std::filesystem::path> files;  ///< field -> .npy file
  std::filesystem::path npz;                           ///< or one file with several arrays
  std::map<std::string, std::string> arrays;  ///< field -> array in `npz`; empty: all, with their own names
  /// Image fields; none: "image", if its shape is that of pixels.
  std::optional<std::vector<std::string>> images;
  std::vector<std::string> classes;  ///< names; empty: "0", "1", ...
  RemotePtr remote = {};             ///< for paths that are URLs

  static described::Description<NpyOptions> description();
};

/// The shape of pixel arrays: uint8 (n, h, w), (n, h, w, 1 | 3) or planar (n, 1 | 3, h, w); if two of them
/// match, the earlier one is used. None for other arrays.
std::optional<decode::PixelShape> pixel_shape(const NpyHeader& header);

/// Fields are ordered images first, then by name. A field `label` must hold integers, one per sample: it is
/// the class. Rows are spans into the mapped files. The fingerprint is xxh3 over each field's name, dtype and
/// shape, the labels, and the first and last MiB of the other fields.
///
/// kDatasetInvalid, with the file and array: open_npy()'s and open_npz()'s errors; different first dimensions
/// (names both arrays), an array without dimensions, no sample, an empty dimension, more than seven
/// dimensions; images that are not pixels, labels that are not integers or have no class, invalid field
/// names.
Result<std::shared_ptr<const Source>> open_npy_set(const NpyOptions& options);

}  // namespace headrace::server::source
