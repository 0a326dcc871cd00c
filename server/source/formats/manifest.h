// Samples listed in a file: paths of images, classes, numbers, boxes, text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/described/description.h"
#include "server/remote/remote.h"
#include "server/source/source.h"

namespace headrace::server::source {

enum class ManifestKind : std::uint8_t {
  kImage,     ///< a path, relative to the root
  kMask,      ///< the path of a mask
  kClass,     ///< the sample's class: a name, or a whole number
  kValue,     ///< a number or a list of `shape`
  kRagged,    ///< a list of any length of values of `shape`
  kText,      ///< UTF-8 as ragged bytes
  kMultiHot,  ///< a list of classes, or text with | between them: 1 at each, one value for each of `classes`
};

struct ManifestField {
  ManifestKind kind = ManifestKind::kImage;
  std::string column;  ///< empty: the field's name
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  /// For kClass; empty: those that occur, sorted; numbers are their own index.
  std::vector<std::string> classes;
  std::int32_t scale = 1;  ///< for images: see SourceField
};

struct ManifestOptions {
  std::filesystem::path path;  ///< .csv, .tsv, .jsonl, .txt (server/source/formats/manifest_rows.h)
  std::filesystem::path root;  ///< for relative paths; empty: the manifest's folder
  std::map<std::string, ManifestField> fields;  ///< by name; at most one kClass. Empty: `image` from the
                                                ///< first of the columns path, image, file, filename, and the
                                                ///< class from label or class if there is one
  std::shared_ptr<const remote::Remote> remote = {};  ///< for a path or root that is a URL

  static described::Description<ManifestOptions> description();
};

/// Every listed file must exist; sizes: see open_image_folder(). Images below a root that is a URL form a
/// UrlColumn.
///
/// kDatasetInvalid: unreadable, no rows, a missing column; wrong lines, each with file:line, the first 20.
Result<std::shared_ptr<const Source>> open_manifest(const ManifestOptions& options);

}  // namespace headrace::server::source
