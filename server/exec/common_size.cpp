#include "server/exec/common_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/decode/decoder.h"
#include "server/exec/shown_name.h"

namespace headrace::server::exec {

Result<std::optional<transform::Size>> common_size(const source::Source& source, std::size_t field,
                                                   std::uint64_t max_pixels) {
  constexpr std::uint64_t kMostLooks = 16;
  const std::uint64_t last = std::max<std::uint64_t>(source.size(), 1) - 1;
  const std::uint64_t looks = std::min(source.size(), kMostLooks);
  source::FieldSet wanted;
  wanted.add(field);
  source::Sample sample;
  decode::Decoder decoder;
  std::optional<decode::ImageSize> common;
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < looks; ++i) {
    const std::uint64_t index = looks == 1 ? 0 : i * last / (looks - 1);
    if (!source.read_fields(index, wanted, sample)) continue;  // serving it reports the error
    const auto size = decoder.open(sample.item(field).image(), max_pixels);
    if (!size) continue;
    if (!common) {
      common = *size;
      first = index;
    } else if (*size != *common) {
      return fail(
          ErrorCode::kConfigInvalid,
          fmt::format("images have different sizes ({}: {}x{}, {}: {}x{}, width x height): end `transforms` "
                      "with random_resized_crop, random_crop, center_crop or resize to [height, width]",
                      shown_name(source, first), common->width, common->height, shown_name(source, index),
                      size->width, size->height));
    }
  }
  if (!common) return std::nullopt;
  return transform::Size{common->height, common->width};
}

}  // namespace headrace::server::exec
