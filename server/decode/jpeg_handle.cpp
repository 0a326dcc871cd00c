#include "server/decode/jpeg_handle.h"

#include <jerror.h>

#include <algorithm>
#include <cstring>

#include "server/decode/grow.h"
#include "server/decode/stop.h"

namespace headrace::server::decode {
namespace {

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

/// Whether libjpeg smooths between blocks because a progressive file lacks scans. The smoothing restarts at
/// the first requested column, and differs between versions of libjpeg-turbo.
bool smooths(const jpeg_decompress_struct& info) {
  constexpr int kLooksAt = 10;  // coefficients, of libjpeg-turbo 2.1's smoothing
  if (!info.progressive_mode || info.coef_bits == nullptr) return false;
  for (int c = 0; c < info.num_components; ++c)
    for (int i = 1; i < kLooksAt; ++i)
      if (info.coef_bits[c][i] != 0) return true;
  return false;
}

bool is_restart(int marker) {
  return marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7;
}

/// The next marker that ends entropy-coded data, which restart markers do not. 0: there is none.
int marker_after(const std::uint8_t* at, const std::uint8_t* end) {
  while (at < end) {
    at = static_cast<const std::uint8_t*>(std::memchr(at, 0xFF, static_cast<std::size_t>(end - at)));
    if (at == nullptr) return 0;
    while (at < end && *at == 0xFF) ++at;  // T.81, B.1.1.2: any number of them
    if (at < end && *at != 0 && !is_restart(*at)) return *at;
  }
  return 0;
}

}  // namespace

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
    if (must_stop()) of(common).leave(kStopped, "the server stops");
    const auto& decompress = *reinterpret_cast<j_decompress_ptr>(common);
    if (too_many_scans(decompress.input_scan_number,
                       std::uint64_t{decompress.image_width} * decompress.image_height)) {
      of(common).leave(
          kTooManyScans,
          "a progressive JPEG with more than 500 scans, or more than 2 billion scans times pixels; "
          "save it as a baseline JPEG");
    }
  };

  if (run([](Handle& self) { jpeg_create_decompress(&self.info); })) {
    attach(info);
    info.src = &source;
    info.progress = &progress;
  }
}

tl::unexpected<Bad> JpegReader::Handle::failure() {
  jpeg_abort_decompress(&info);
  if (code == kStopped) throw Stopped();
  return bad(reason_of(code), message);
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

void JpegReader::Handle::set_output() {
  if (tiled && !cut.whole) info.jpeg_color_space = colors;
  info.out_color_space = inverted_cmyk ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
}

void JpegReader::Handle::start() {
  set_output();
  jpeg_start_decompress(&info);
  if (libjpeg_alone) {
    entropy.disable();
  } else {
    entropy.take_over(info, {source.next_input_byte, source.bytes_in_buffer});
  }
  if (tiled) end_rows_at(static_cast<JDIMENSION>(cut.width));
  const bool smoothed = smooths(info);
  if (smoothed) warn("a progressive JPEG without all of its scans: the missing detail is smoothed over");
  const auto image_width = static_cast<std::int32_t>(info.output_width);
  const auto from = std::max(0, region.left - kJpegMargin);
  const auto to = std::min(image_width, region.left + region.width + kJpegMargin);
  auto x = static_cast<JDIMENSION>(from);
  auto width = static_cast<JDIMENSION>(to - from);
  if (to - from < image_width && !smoothed) {
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
  return run([](Handle& self) {
    self.start();
    for (std::int32_t row = 0; row < self.done; row += kBlockRows)
      self.read(self.keep ? row : 0, std::min(kBlockRows, self.done - row));
  });
}

bool JpegReader::Handle::ends_plainly() {
  if (jpeg_has_multiple_scans(&info)) return true;  // jpeg_start_decompress() read up to the end
  const int met = info.unread_marker;               // found by libjpeg's entropy decoder
  if (met != 0 && !is_restart(met)) return met == JPEG_EOI;
  const std::uint8_t* const ours = entropy.position();
  return marker_after(ours != nullptr ? ours : source.next_input_byte, file.data() + file.size()) == JPEG_EOI;
}

void JpegReader::Handle::finish() {
  set_output();
  jpeg_start_decompress(&info);
  grow(line, std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components));
  JSAMPROW row = line.data();
  while (info.output_scanline < info.output_height) jpeg_read_scanlines(&info, &row, 1);
  jpeg_finish_decompress(&info);
}

bool JpegReader::Handle::read_to_end() {
  jpeg_abort_decompress(&info);
  const long warned = errors.num_warnings;
  const bool good = read_header(file) && run([](Handle& self) { self.finish(); });
  errors.num_warnings = warned;  // ignore repairs below the region, which are not delivered
  // PIL accepts a file that ends inside a segment after its scan, even if half of the image is flat.
  return good || (code == kOutOfBytes && warned == header_warnings);
}

}  // namespace headrace::server::decode
