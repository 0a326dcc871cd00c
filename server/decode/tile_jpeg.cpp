#include "server/decode/tile_jpeg.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

#include <algorithm>
#include <cstring>

#include "server/decode/grow.h"
#include "server/decode/jpeg.h"
#include "server/decode/jpeg_tiles.h"
#include "server/decode/stop.h"

namespace headrace::server::decode {
namespace {

constexpr std::uint64_t kMostPixels = kMostTiledPixels;
constexpr std::size_t kSpareBytes = 4096;

bool is_jpeg(std::span<const std::uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xFF && file[1] == 0xD8 && file[2] == 0xFF;
}

/// The tiles' lengths in the bytes between SOS and the end of the file; empty: they are not a scan with
/// tiles.
bool tile_lengths(std::span<const std::uint8_t> scan, std::vector<std::uint32_t>& lengths) {
  lengths.clear();
  std::size_t start = 0;
  for (std::size_t at = 0; at + 1 < scan.size(); ++at) {
    if (scan[at] != 0xFF || scan[at + 1] == 0) continue;
    lengths.push_back(static_cast<std::uint32_t>(at - start));
    if (scan[at + 1] == 0xD9) return at + 2 == scan.size();
    if (scan[at + 1] != 0xD0 + ((lengths.size() - 1) & 7)) return false;
    start = at + 2;
    ++at;
  }
  return false;
}

}  // namespace

std::string_view name_of(Tiling tiling) {
  constexpr std::array<std::string_view, kTilings> kNames = {
      "tiled",          "no JPEG",     "tiled already",     "small", "large", "unsupported",
      "with a warning", "undecodable", "not quite the same"};
  return kNames.at(static_cast<std::size_t>(tiling));
}

TilingCounts& TilingCounts::operator+=(const TilingCounts& other) {
  for (std::size_t i = 0; i < kTilings; ++i) files[i] += other.files[i];
  before += other.before;
  after += other.after;
  return *this;
}

struct JpegTiler::Handle {
  jpeg_decompress_struct from{};
  jpeg_compress_struct to{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jpeg_destination_mgr destination{};
  std::jmp_buf escape{};
  bool ready = false, no_room = false, several_scans = false;

  std::span<const std::uint8_t> file;
  std::vector<std::uint8_t> plain;  // libjpeg's output: everything but the index
  std::size_t plain_bytes = 0;
  std::size_t other_segments = 0;  // bytes of APPn and COM
  Tiling answer = Tiling::kTiled;
  ImageSize size, mcu;
  std::int32_t mcus = 0, columns = 0, rows = 0;  // per tile; in tiles

  std::vector<std::uint32_t> lengths;
  JpegReader before, after;

  Handle();
  ~Handle() {
    jpeg_destroy_compress(&to);
    jpeg_destroy_decompress(&from);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // The only frame that libjpeg's errors jump to. Steps hold nothing that needs a destructor.
  bool run(void (*step)(Handle&)) {
    if (setjmp(escape) != 0) return false;
    step(*this);
    return true;
  }
  void start(std::span<const std::uint8_t> of);
  void inspect();
  void rewrite();
  void append_padding(jvirt_barray_ptr source, jvirt_barray_ptr padded, const jpeg_component_info& component);
  bool same_pixels();
};

JpegTiler::Handle::Handle() {
  from.err = to.err = jpeg_std_error(&errors);
  from.client_data = to.client_data = this;
  errors.error_exit = [](j_common_ptr common) {
    std::longjmp(static_cast<Handle*>(common->client_data)->escape, 1);
  };
  errors.emit_message = [](j_common_ptr common, int level) {
    if (level < 0) ++common->err->num_warnings;
  };
  errors.output_message = [](j_common_ptr) {};
  progress.progress_monitor = [](j_common_ptr common) {
    if (!common->is_decompressor) return;
    const auto& decompress = *reinterpret_cast<j_decompress_ptr>(common);
    if (must_stop() || too_many_scans(decompress.input_scan_number,
                                      std::uint64_t{decompress.image_width} * decompress.image_height))
      common->err->error_exit(common);
  };
  destination.init_destination = [](j_compress_ptr) {};
  destination.empty_output_buffer = [](j_compress_ptr compress) -> boolean {
    static_cast<Handle*>(compress->client_data)->no_room = true;
    compress->err->error_exit(reinterpret_cast<j_common_ptr>(compress));
    return FALSE;
  };
  destination.term_destination = [](j_compress_ptr) {};
  ready = run([](Handle& self) { jpeg_create_compress(&self.to); });
  to.dest = &destination;
}

/// Resets the state of the previous file, including tables that libjpeg would keep for a file without any.
void JpegTiler::Handle::start(std::span<const std::uint8_t> of) {
  jpeg_destroy_decompress(&from);
  jpeg_abort_compress(&to);
  file = of;
  answer = Tiling::kTiled;
  no_room = false;
  errors.num_warnings = 0;
  other_segments = 0;
}

/// Reads the header and checks whether the file can be tiled.
void JpegTiler::Handle::inspect() {
  jpeg_create_decompress(&from);
  from.progress = &progress;
  jpeg_mem_src(&from, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_save_markers(&from, JPEG_COM, 0xFFFF);
  for (int n = 0; n < 16; ++n) jpeg_save_markers(&from, JPEG_APP0 + n, 0xFFFF);
  jpeg_read_header(&from, TRUE);
  several_scans = jpeg_has_multiple_scans(&from) != 0;
  const bool single = from.num_components == 1;
  mcu = {DCTSIZE * (single ? 1 : from.max_h_samp_factor), DCTSIZE * (single ? 1 : from.max_v_samp_factor)};
  size = {static_cast<std::int32_t>(from.image_width), static_cast<std::int32_t>(from.image_height)};
  mcus = tile_mcus(mcu.width);
  columns = (size.width + mcus * mcu.width - 1) / (mcus * mcu.width);
  rows = (size.height + mcu.height - 1) / mcu.height;
  const auto pixels = static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height);
  if (from.arith_code || from.num_components == 2) {
    answer = Tiling::kUnsupported;
  } else if (pixels > kMostPixels || columns * mcus * mcu.width > JPEG_MAX_DIMENSION) {
    answer = Tiling::kLarge;
  } else if (columns < 2) {
    answer = Tiling::kSmall;
  }
}

void JpegTiler::Handle::append_padding(jvirt_barray_ptr source, jvirt_barray_ptr padded,
                                       const jpeg_component_info& component) {
  auto* const common = reinterpret_cast<j_common_ptr>(&from);
  const auto across = from.num_components == 1 ? 1 : component.h_samp_factor;
  const auto wide = static_cast<JDIMENSION>(columns * mcus * across);
  const JDIMENSION own = component.width_in_blocks;
  for (JDIMENSION row = 0; row < component.height_in_blocks; ++row) {
    const JBLOCKROW in = from.mem->access_virt_barray(common, source, row, 1, FALSE)[0];
    const JBLOCKROW out = from.mem->access_virt_barray(common, padded, row, 1, TRUE)[0];
    std::memcpy(out, in, own * sizeof(JBLOCK));
    // Padding costs the fewest bits with the last block's mean; the array is cleared.
    for (JDIMENSION block = own; block < wide; ++block) out[block][0] = in[own - 1][0];
  }
}

/// Writes everything but the index into `plain`.
void JpegTiler::Handle::rewrite() {
  const bool single = from.num_components == 1;
  // Request these arrays before the coefficients are read, which makes libjpeg allocate.
  jvirt_barray_ptr padded[MAX_COMPONENTS] = {};
  for (int c = 0; c < from.num_components; ++c) {
    const jpeg_component_info& component = from.comp_info[c];
    const int across = single ? 1 : component.h_samp_factor, down = single ? 1 : component.v_samp_factor;
    padded[c] =
        from.mem->request_virt_barray(reinterpret_cast<j_common_ptr>(&from), JPOOL_IMAGE, TRUE,
                                      static_cast<JDIMENSION>(columns * mcus * across),
                                      static_cast<JDIMENSION>(rows * down), static_cast<JDIMENSION>(down));
  }
  jvirt_barray_ptr* const read = jpeg_read_coefficients(&from);
  for (int c = 0; c < from.num_components; ++c) append_padding(read[c], padded[c], from.comp_info[c]);

  jpeg_copy_critical_parameters(&from, &to);
  const std::int32_t wide = columns * mcus * mcu.width;
  if (wide - size.width >= mcu.width) to.image_width = static_cast<JDIMENSION>(wide);
  if (single) to.comp_info[0].h_samp_factor = to.comp_info[0].v_samp_factor = 1;
  to.restart_interval = static_cast<unsigned>(mcus);
  to.optimize_coding = TRUE;
  // If the file has these markers, they are among the copied segments.
  to.write_JFIF_header = to.write_Adobe_marker = FALSE;
  destination.next_output_byte = plain.data();
  destination.free_in_buffer = plain.size();
  jpeg_write_coefficients(&to, padded);
  for (const auto* marker = from.marker_list; marker != nullptr; marker = marker->next) {
    const bool ours = marker->marker == kTileMarker && marker->data_length >= kTileTag.size() &&
                      std::memcmp(marker->data, kTileTag.data(), kTileTag.size()) == 0;
    if (ours) continue;
    jpeg_write_marker(&to, marker->marker, marker->data, marker->data_length);
    other_segments += 4 + marker->data_length;
  }
  jpeg_finish_compress(&to);
  plain_bytes = plain.size() - destination.free_in_buffer;
  jpeg_finish_decompress(&from);
}

bool JpegTiler::Handle::same_pixels() {
  const Rect all{0, 0, size.width, size.height};
  if (!before.begin(all, false)) {
    answer = Tiling::kUndecodable;
    return false;
  }
  bool same = after.begin(all, false).has_value();
  for (std::int32_t row = 0; same && row < size.height;) {
    const auto a = before.next();
    const auto b = after.next();
    if (!a) answer = Tiling::kUndecodable;
    same = a && b && a->count == b->count;
    for (std::int32_t i = 0; same && i < a->count; ++i)
      same = std::memcmp(a->data + i * a->stride, b->data + i * b->stride,
                         static_cast<std::size_t>(size.width) * 3) == 0;
    if (same) row += a->count;
  }
  if (before.warnings() > 0) answer = Tiling::kWarned;
  if (!same && answer == Tiling::kTiled) answer = Tiling::kDiffers;
  return answer == Tiling::kTiled;
}

JpegTiler::JpegTiler() : handle_(std::make_unique<Handle>()) {}
JpegTiler::~JpegTiler() = default;
JpegTiler::JpegTiler(JpegTiler&&) noexcept = default;
JpegTiler& JpegTiler::operator=(JpegTiler&&) noexcept = default;

std::uint64_t JpegTiler::room(std::span<const std::uint8_t> file, std::uint64_t most_pixels) {
  if (!is_jpeg(file) || TileMap::claimed_by(file)) return 0;
  Handle h;
  if (!h.ready) return 0;
  h.start(file);
  if (!h.run([](Handle& self) { self.inspect(); }) || h.answer != Tiling::kTiled) return 0;
  const auto area = [](std::int32_t a, std::int32_t b) {
    return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
  };
  if (area(h.size.width, h.size.height) > most_pixels) return 0;
  // A tile adds four bytes of marker and index, and codes its first coefficients without a prediction. A
  // progressive file grows when it becomes one scan.
  constexpr std::uint64_t kTileBytes = 8, kHeadBytes = 128;
  const std::uint64_t scans = h.several_scans ? file.size() / 16 : 0;
  return file.size() + scans + kTileBytes * area(h.columns, h.rows) + kHeadBytes;
}

Tiling JpegTiler::tile(std::span<const std::uint8_t> file, std::vector<std::uint8_t>& out) {
  Handle& h = *handle_;
  if (!is_jpeg(file)) return Tiling::kNoJpeg;
  if (TileMap::claimed_by(file)) return Tiling::kAlready;
  if (!h.ready || !h.before.open(file, kMaxSide * std::uint64_t{kMaxSide})) return Tiling::kUndecodable;
  h.start(file);
  if (!h.run([](Handle& self) { self.inspect(); })) return Tiling::kUndecodable;
  if (h.answer != Tiling::kTiled) return h.answer;
  h.plain.resize(file.size() + file.size() / 2 + kSpareBytes);
  if (!h.run([](Handle& self) { self.rewrite(); })) return h.no_room ? Tiling::kSmall : Tiling::kUnsupported;
  if (h.errors.num_warnings > 0) return Tiling::kWarned;

  const std::span<const std::uint8_t> plain(h.plain.data(), h.plain_bytes);
  // SOS is the last segment, and libjpeg writes its length correctly.
  const std::size_t tables_at = 2 + h.other_segments;
  std::size_t scan = tables_at;
  for (bool last = false; !last && scan + 4 <= plain.size();) {
    last = plain[scan + 1] == 0xDA;
    scan += std::size_t{2} + static_cast<std::size_t>(plain[scan + 2] << 8 | plain[scan + 3]);
  }
  const auto tiles = static_cast<std::size_t>(h.columns) * static_cast<std::size_t>(h.rows);
  if (scan >= plain.size() || !tile_lengths(plain.subspan(scan), h.lengths) || h.lengths.size() != tiles)
    return Tiling::kUnsupported;
  const auto index = tile_index(h.size, h.mcus, scan - tables_at, h.lengths);
  if (!index) return Tiling::kUnsupported;
  out.assign(plain.begin(), plain.begin() + 2);
  out.insert(out.end(), index->begin(), index->end());
  out.insert(out.end(), plain.begin() + 2, plain.end());
  if (const auto opened = h.after.open(out, kMaxSide * std::uint64_t{kMaxSide}); !opened || *opened != h.size)
    return Tiling::kDiffers;
  h.same_pixels();
  return h.answer;
}

}  // namespace headrace::server::decode
