// Sets of numpy arrays: the first dimension of each is the sample.
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
  std::filesystem::path npz;                           ///< or one file of several arrays
  std::map<std::string, std::string> arrays;       ///< field -> array in `npz`; empty: all, by their names
  std::optional<std::vector<std::string>> images;  ///< fields; none: "image", if it is pixels by its shape
  std::vector<std::string> classes;                ///< names; empty: "0", "1", ...
  RemotePtr remote = {};                           ///< for paths that are URLs

  static described::Description<NpyOptions> description();
};

/// Arrays of pixels: uint8, (n, h, w), (n, h, w, 1 | 3) or planar (n, 1 | 3, h, w); where two of them fit,
/// the former holds. None for other arrays.
std::optional<decode::PixelShape> pixel_shape(const NpyHeader& header);

/// Fields come images first, then by name. A field `label` must be of integers, one per sample: it is the
/// class. Rows are spans into the mapped files. The fingerprint is xxh3 over each field's name, dtype and
/// shape, the labels, and the first and last MiB of the other fields.
///
/// kDatasetInvalid, by file and array: open_npy()'s and open_npz()'s errors; first dimensions that differ
/// (both arrays are named), an array without one, no sample, an empty dimension, more than seven; images that
/// are no pixels, labels that are no integers or have no class, names that no field may have.
Result<std::shared_ptr<const Source>> open_npy_set(const NpyOptions& options);

}  // namespace headrace::server::source
