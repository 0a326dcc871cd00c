#include "server/decode/jpeg.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/decode/grow.h"
#include "server/decode/jpeg_handle.h"

namespace headrace::server::decode {

bool JpegReader::Handle::read_tiles() {
  if (info.progressive_mode || info.arith_code || info.comps_in_scan != info.num_components) return false;
  const bool single = info.num_components == 1;
  colors = info.jpeg_color_space;
  note_frame();
  return tiles.read(encoded, {.size = {static_cast<std::int32_t>(info.image_width),
                                       static_cast<std::int32_t>(info.image_height)},
                              .mcu = {DCTSIZE * (single ? 1 : info.max_h_samp_factor),
                                      DCTSIZE * (single ? 1 : info.max_v_samp_factor)},
                              .restart_mcus = info.restart_interval,
                              .scan = static_cast<std::size_t>(source.next_input_byte - encoded.data())});
}

void JpegReader::Handle::note_frame() {
  frame = {info.num_components, info.restart_interval, !info.progressive_mode && !info.arith_code, {}, {}};
  for (std::size_t c = 0; c < static_cast<std::size_t>(info.num_components); ++c) {
    frame.across[c] = info.comp_info[c].h_samp_factor;
    frame.down[c] = info.comp_info[c].v_samp_factor;
  }
}

bool JpegReader::Handle::take_tiles() {
  cut = tiles.cut(region);
  if (cut.whole) return true;
  region.left -= cut.left;
  region.top -= cut.top;
  jpeg_abort_decompress(&info);
  const auto other_tiles = [this] {
    code = kOtherTiles;
    std::snprintf(message, sizeof(message), "its tile index belongs to another file");
    return false;
  };
  const auto spliced = tiles.splice(cut);
  if (spliced.empty()) return other_tiles();
  const Frame whole = frame;
  if (!read_header(spliced)) return false;
  note_frame();
  // The header in the tables that the index names may differ from the file's own.
  if (info.image_width != static_cast<JDIMENSION>(cut.coded.width) ||
      info.image_height != static_cast<JDIMENSION>(cut.coded.height) || frame != whole)
    return other_tiles();
  return true;
}

JpegReader::JpegReader() : handle_(std::make_unique<Handle>()) {}
JpegReader::~JpegReader() = default;
JpegReader::JpegReader(JpegReader&&) noexcept = default;
JpegReader& JpegReader::operator=(JpegReader&&) noexcept = default;

Decoded<ImageSize> JpegReader::open(std::span<const std::uint8_t> encoded, std::uint64_t max_pixels) {
  auto& h = *handle_;
  if (h.info.src == nullptr) return bad(BadReason::kTooLarge, "no memory for a JPEG decoder");
  jpeg_abort_decompress(&h.info);
  h.encoded = encoded;
  h.errors.num_warnings = 0;
  h.first_warning[0] = '\0';
  if (!h.read_header(encoded)) return h.failure();

  ImageSize size{static_cast<std::int32_t>(h.info.image_width),
                 static_cast<std::int32_t>(h.info.image_height)};
  h.tiled = TileMap::claimed_by(encoded);
  if (h.tiled) {
    if (!h.read_tiles())
      return bad(BadReason::kCorrupt,
                 "its tile index (APP10) does not fit: another program changed the file after it was tiled");
    size = h.tiles.size();
  }
  if (static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height) > max_pixels) {
    return bad(BadReason::kTooLarge,
               fmt::format("{} x {} pixels; the limit is {} pixels", size.width, size.height, max_pixels));
  }
  if (h.info.num_components != 1 && h.info.num_components != 3 && h.info.num_components != 4) {
    return bad(BadReason::kUnsupported, fmt::format("a JPEG of {} components", h.info.num_components));
  }
  if (h.tiled) return size;  // its index ends at the end-of-image marker
  // Almost every file has its end-of-image marker in the last two bytes, so this costs nothing.
  const auto* first = reinterpret_cast<const std::uint8_t*>(h.source.next_input_byte);
  const auto* last = encoded.data() + encoded.size();
  bool ended = false;
  for (const auto* at = last; !ended && at - first >= 2; --at) ended = at[-2] == 0xFF && at[-1] == 0xD9;
  if (!ended) return bad(BadReason::kTruncated, "the file ends without an end-of-image marker");
  return size;
}

std::size_t JpegReader::memory(Rect region, bool keep) const {
  const auto& info = handle_->info;
  std::size_t bytes = 0;
  if (info.progressive_mode || jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&info)))
    for (int c = 0; c < info.num_components; ++c)
      bytes += std::size_t{info.comp_info[c].width_in_blocks} * info.comp_info[c].height_in_blocks *
               sizeof(JBLOCK);
  if (keep)
    bytes += std::size_t{info.image_width} * static_cast<std::size_t>(std::max(3, info.num_components)) *
             static_cast<std::size_t>(region.height);
  return bytes;
}

void JpegReader::free_large() {
  jpeg_abort_decompress(&handle_->info);
  if (handle_->keep) handle_->rows = handle_->rgb = {};
}

Decoded<void> JpegReader::begin(Rect region, bool keep) {
  auto& h = *handle_;
  h.region = region;
  h.done = 0;
  h.keep = keep;
  if (h.tiled && !h.take_tiles()) return h.failure();
  h.inverted_cmyk = h.info.num_components == 4;
  h.header_warnings = h.errors.num_warnings;
  h.libjpeg_alone = false;
  if (!h.run([](Handle& self) { self.start(); }) && !(h.code == kOddScan && h.reread())) return h.failure();
  h.row_bytes = std::size_t{h.info.output_width} * static_cast<std::size_t>(h.info.output_components);
  const auto held = static_cast<std::size_t>(keep ? region.height : kBlockRows);
  grow(h.rows, h.row_bytes * held + kRowSlack);
  if (h.inverted_cmyk) grow(h.rgb, static_cast<std::size_t>(region.width) * 3 * held + kRowSlack);
  return {};
}

namespace {

// PIL assumes that every four-component JPEG is inverted, then converts without a color profile.
void cmyk_to_rgb(const std::uint8_t* cmyk, std::uint8_t* rgb, std::int32_t width) {
  for (std::int32_t x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int ink = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * ink + 128;
      rgb[c] = static_cast<std::uint8_t>(std::clamp(ink - ((product + (product >> 8)) >> 8), 0, 255));
    }
  }
}

}  // namespace

Decoded<Rows> JpegReader::next() {
  auto& h = *handle_;
  h.block = std::min(kBlockRows, h.region.height - h.done);
  h.slot = h.keep ? h.done : 0;
  const auto step = [](Handle& self) { self.read(self.slot, self.block); };
  if (!h.run(step) && !(h.code == kOddScan && h.reread() && h.run(step))) return h.failure();
  h.done += h.block;
  if (h.done == h.region.height) {
    if (!h.ends_plainly() && !h.read_to_end()) return h.failure();
    jpeg_abort_decompress(&h.info);
  }
  const auto* rows = h.rows.data() + static_cast<std::size_t>(h.slot) * h.row_bytes;
  if (!h.inverted_cmyk) return Rows{rows + 3 * h.left, static_cast<std::ptrdiff_t>(h.row_bytes), h.block};
  const auto rgb_row = static_cast<std::size_t>(h.region.width) * 3;
  auto* rgb = h.rgb.data() + static_cast<std::size_t>(h.slot) * rgb_row;
  for (std::int32_t i = 0; i < h.block; ++i) {
    cmyk_to_rgb(rows + static_cast<std::size_t>(i) * h.row_bytes + 4 * h.left,
                rgb + static_cast<std::size_t>(i) * rgb_row, h.region.width);
  }
  return Rows{rgb, static_cast<std::ptrdiff_t>(rgb_row), h.block};
}

long JpegReader::warnings() const {
  return handle_->errors.num_warnings;
}
std::string_view JpegReader::warning() const {
  return handle_->first_warning;
}

}  // namespace headrace::server::decode
