#include "server/decode/jpeg.h"

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs <cstdio> before it.
#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <vector>

#include "server/decode/grow.h"
#include "server/decode/jpeg_entropy.h"
#include "server/decode/jpeg_memory.h"
#include "server/decode/jpeg_tiles.h"

namespace headrace::server::decode {
namespace {

// Ours, beside libjpeg's JERR_ codes.
constexpr int kOutOfBytes = 100'001;
constexpr int kTooManyScans = 100'002;
constexpr int kOtherTiles = 100'003;

BadReason reason_of(int code) {
  switch (code) {
    case kOutOfBytes:
    case JERR_INPUT_EOF:
      return BadReason::kTruncated;
    case JERR_OUT_OF_MEMORY:
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
      return BadReason::kTooLarge;
    case kTooManyScans:
    case JERR_BAD_PRECISION:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
      return BadReason::kUnsupported;
    default:
      return BadReason::kCorrupt;
  }
}

/// Whether libjpeg smooths between blocks: what a progressive file's scans have left open. It begins anew at
/// the first column that it is asked for.
bool smooths(const jpeg_decompress_struct& info) {
  constexpr int kLooksAt = 10;  // coefficients, of libjpeg-turbo 2.1's smoothing
  if (!info.progressive_mode || info.coef_bits == nullptr) return false;
  for (int c = 0; c < info.num_components; ++c)
    for (int i = 1; i < kLooksAt; ++i)
      if (info.coef_bits[c][i] != 0) return true;
  return false;
}

}  // namespace

struct JpegReader::Handle : JpegMemory {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  int code = 0;
  char message[JMSG_LENGTH_MAX] = {};
  char first_warning[JMSG_LENGTH_MAX] = {};

  std::span<const std::uint8_t> encoded;
  std::span<const std::uint8_t> file;  // whose header was read: `encoded`, or tiles of it
  long header_warnings = 0;
  JpegEntropy entropy;
  bool libjpeg_alone = false;  // without it
  Rect region;
  std::int32_t done = 0;  // rows of the region
  bool keep = false;
  std::int32_t slot = 0;      // row of the buffers that the block begins at
  std::int32_t block = 0;     // rows of the block being read
  std::int32_t left = 0;      // the region's first column within what libjpeg delivers
  std::size_t row_bytes = 0;  // of what libjpeg delivers
  bool inverted_cmyk = false;
  std::vector<std::uint8_t> rows, rgb;

  bool tiled = false;  // the open file has a tile index
  TileMap tiles;
  TileCut cut;              // which part of it is decoded
  J_COLOR_SPACE colours{};  // of the whole file, whose header says it
  // What decides how many pixels a tile has.
  struct Frame {
    int components = 0;
    unsigned restart_mcus = 0;
    bool sequential = false;
    std::array<int, MAX_COMPONENTS> across{}, down{};
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  Frame frame;
  void note_frame();

  Handle();
  ~Handle() { jpeg_destroy_decompress(&info); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // The only frame that libjpeg's errors jump to. Steps hold nothing that needs a destructor.
  bool run(void (*step)(Handle&)) {
    if (setjmp(escape) != 0) return false;
    step(*this);
    return true;
  }
  // Of a file with a tile index:
  bool read_tiles();
  bool take_tiles();
  // As in an image of that width: fancy upsampling ends at its last column.
  void end_rows_at(JDIMENSION width);

  // Steps: to the region's first row; `count` rows, into the buffers from `at` on.
  void start();
  void read(std::int32_t at, std::int32_t count);
  // Up to the region's next row again, by libjpeg's own entropy decoder. False: libjpeg failed at that, too.
  bool reread();

  [[noreturn]] void leave(int error_code, const char* text) {
    code = error_code;
    std::snprintf(message, sizeof(message), "%s", text);
    std::longjmp(escape, 1);
  }
  // Adds to the warnings.
  bool read_header(std::span<const std::uint8_t> from) {
    file = from;
    source.next_input_byte = file.data();
    source.bytes_in_buffer = file.size();
    forget_tables(info);
    const long warned = errors.num_warnings;  // which libjpeg forgets
    const bool good = run([](Handle& self) { jpeg_read_header(&self.info, TRUE); });
    errors.num_warnings += warned;
    return good;
  }
  tl::unexpected<Bad> failure() {
    jpeg_abort_decompress(&info);
    return bad(reason_of(code), message);
  }

  static Handle& of(j_common_ptr common) { return of(common->client_data); }
  static Handle& of(j_decompress_ptr info) { return of(info->client_data); }
  static Handle& of(void* client_data) {
    return *static_cast<Handle*>(static_cast<JpegMemory*>(client_data));
  }
};

JpegReader::Handle::Handle() {
  info.err = jpeg_std_error(&errors);
  info.client_data = static_cast<JpegMemory*>(this);
  errors.error_exit = [](j_common_ptr common) {
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    of(common).leave(common->err->msg_code, text);
  };
  errors.emit_message = [](j_common_ptr common, int level) {
    if (level >= 0) return;
    ++common->err->num_warnings;
    if (char* const first = of(common).first_warning; *first == '\0')
      common->err->format_message(common, first);
  };
  errors.output_message = [](j_common_ptr) {};

  source.init_source = [](j_decompress_ptr) {};
  source.fill_input_buffer = [](j_decompress_ptr decompress) -> boolean {
    of(decompress).leave(kOutOfBytes, "the file ends before its image does");
  };
  source.skip_input_data = [](j_decompress_ptr decompress, long count) {
    auto& from = *decompress->src;
    if (count <= 0) return;
    if (static_cast<std::size_t>(count) > from.bytes_in_buffer) {
      of(decompress).leave(kOutOfBytes, "the file ends inside a marker segment");
    }
    from.next_input_byte += count;
    from.bytes_in_buffer -= static_cast<std::size_t>(count);
  };
  source.resync_to_restart = jpeg_resync_to_restart;
  source.term_source = [](j_decompress_ptr) {};

  progress.progress_monitor = [](j_common_ptr common) {
    const auto& decompress = *reinterpret_cast<j_decompress_ptr>(common);
    if (decompress.input_scan_number > kMaxScans) {
      of(common).leave(kTooManyScans, "a progressive JPEG with more than 500 scans");
    }
  };

  if (run([](Handle& self) { jpeg_create_decompress(&self.info); })) {
    attach(info);
    info.src = &source;
    info.progress = &progress;
  }
}

bool JpegReader::Handle::read_tiles() {
  if (info.progressive_mode || info.arith_code || info.comps_in_scan != info.num_components) return false;
  const bool single = info.num_components == 1;
  colours = info.jpeg_color_space;
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
    std::snprintf(message, sizeof(message), "its tile index is of another file");
    return false;
  };
  const auto spliced = tiles.splice(cut);
  if (spliced.empty()) return other_tiles();
  const Frame whole = frame;
  if (!read_header(spliced)) return false;
  note_frame();
  // What the index calls tables may be others than those of the file's header.
  if (info.image_width != static_cast<JDIMENSION>(cut.coded.width) ||
      info.image_height != static_cast<JDIMENSION>(cut.coded.height) || frame != whole)
    return other_tiles();
  info.jpeg_color_space = colours;
  return true;
}

void JpegReader::Handle::end_rows_at(JDIMENSION width) {
  if (width >= info.output_width) return;
  info.output_width = width;
  for (int c = 0; c < info.num_components; ++c) {
    jpeg_component_info& component = info.comp_info[c];
    const auto factor = static_cast<JDIMENSION>(component.h_samp_factor);
    const auto most = static_cast<JDIMENSION>(info.max_h_samp_factor);
    component.downsampled_width = (width * factor + most - 1) / most;
  }
}

void JpegReader::Handle::start() {
  info.out_color_space = inverted_cmyk ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  jpeg_start_decompress(&info);
  if (!libjpeg_alone) entropy.take_over(info, {source.next_input_byte, source.bytes_in_buffer});
  if (tiled) end_rows_at(static_cast<JDIMENSION>(cut.width));
  const auto image_width = static_cast<std::int32_t>(info.output_width);
  const auto from = std::max(0, region.left - kJpegMargin);
  const auto to = std::min(image_width, region.left + region.width + kJpegMargin);
  auto x = static_cast<JDIMENSION>(from);
  auto width = static_cast<JDIMENSION>(to - from);
  if (to - from < image_width && !smooths(info)) {
    jpeg_crop_scanline(&info, &x, &width);
    entropy.need(info, x, width);
  } else {
    x = 0;
  }
  left = region.left - static_cast<std::int32_t>(x);
  if (region.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(region.top));
}

void JpegReader::Handle::read(std::int32_t at, std::int32_t count) {
  for (std::int32_t done_here = 0; done_here < count;) {
    JSAMPROW targets[kBlockRows];
    for (std::int32_t i = done_here; i < count; ++i)
      targets[i - done_here] = rows.data() + static_cast<std::size_t>(at + i) * row_bytes;
    const auto got = static_cast<std::int32_t>(
        jpeg_read_scanlines(&info, targets, static_cast<JDIMENSION>(count - done_here)));
    if (got == 0) leave(kOutOfBytes, "the file ends before its image does");
    done_here += got;
  }
}

bool JpegReader::Handle::reread() {
  jpeg_abort_decompress(&info);
  libjpeg_alone = true;
  if (!read_header(file)) return false;
  errors.num_warnings = header_warnings;
  if (tiled && !cut.whole) info.jpeg_color_space = colours;
  return run([](Handle& self) {
    self.start();
    for (std::int32_t row = 0; row < self.done; row += kBlockRows)
      self.read(self.keep ? row : 0, std::min(kBlockRows, self.done - row));
  });
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
  // The end-of-image marker is in the last two bytes of almost every file, so this costs nothing there.
  const auto* first = reinterpret_cast<const std::uint8_t*>(h.source.next_input_byte);
  const auto* last = encoded.data() + encoded.size();
  bool ended = false;
  for (const auto* at = last; !ended && at - first >= 2; --at) ended = at[-2] == 0xFF && at[-1] == 0xD9;
  if (!ended) return bad(BadReason::kTruncated, "the file ends without an end-of-image marker");
  return size;
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

// PIL takes every four-component JPEG for an inverted one, then converts without a colour profile.
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
  if (h.done == h.region.height) jpeg_abort_decompress(&h.info);
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
