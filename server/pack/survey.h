// `headrace inspect`: sizes and classes of any source, and a sheet of its images.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "headrace/error.h"
#include "server/source/source.h"
#include "server/store/store.h"

namespace headrace::server::pack {

struct FieldSizes {
  std::uint64_t total = 0, least = 0, most = 0;  ///< bytes
  std::uint64_t stored = 0;                      ///< of a packed set: in the file
};

struct Survey {
  std::uint64_t samples = 0;
  std::vector<FieldSizes> fields;                   ///< of good samples, as the source gives them
  std::map<std::int64_t, std::uint64_t> per_label;  ///< empty: not labelled
  std::uint64_t unreadable = 0;                     ///< samples that the source reports as bad
};

using OnProgress = std::function<void(std::uint64_t done, std::uint64_t bytes)>;

/// Reads everything on this many threads; calls `on_progress` now and then, by one thread at a time. Errors:
/// the source's.
Result<Survey> survey(const source::Source& source, unsigned threads, const OnProgress& on_progress);
/// The same for a packed set, from its records' heads only.
Result<Survey> survey(const store::Store& store, unsigned threads, const OnProgress& on_progress);

inline constexpr std::int32_t kSheetCells = 8;  ///< columns and rows
inline constexpr std::int32_t kCellSide = 96;   ///< pixels

/// A PNG of 8 x 8 images, evenly spaced over the set and in its order, each resized and cropped to 96 x 96.
/// Undecodable images are red, missing ones black. kInvalidArgument: no field is an image.
Result<std::vector<std::uint8_t>> contact_sheet(const source::Source& source);

}  // namespace headrace::server::pack
