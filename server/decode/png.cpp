#include "server/decode/png.h"

#include <fmt/format.h>
#include <spng.h>

#include <algorithm>
#include <cstring>

#include "server/decode/grow.h"

namespace headrace::server::decode {
namespace {

// The limit for one chunk, and for all ancillary chunks together. It can be low, because text and color
// profiles are not used.
constexpr std::size_t kChunkLimit = std::size_t{8} << 20;
// Deflate's maximum compression ratio.
constexpr std::uint64_t kDeflateRatio = 1032;

BadReason reason_of(int code) {
  switch (code) {
    case SPNG_IO_EOF:
    case SPNG_EOF:
      return BadReason::kTruncated;
    case SPNG_EMEM:
    case SPNG_EOVERFLOW:
    case SPNG_ECHUNK_LIMITS:
      return BadReason::kTooLarge;
    default:
      return BadReason::kCorrupt;
  }
}

tl::unexpected<Bad> failure(int code) {
  return bad(reason_of(code), spng_strerror(code));
}

int channels_of(int color_type) {
  switch (color_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
      return 3;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
      return 4;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
      return 2;
    default:
      return 1;
  }
}

bool has_end_chunk(std::span<const std::uint8_t> encoded) {
  constexpr std::array<std::uint8_t, 4> kEnd = {'I', 'E', 'N', 'D'};
  return std::find_end(encoded.begin(), encoded.end(), kEnd.begin(), kEnd.end()) != encoded.end();
}

}  // namespace

void PngReader::Free::operator()(spng_ctx* context) const {
  spng_ctx_free(context);
}

Decoded<ImageSize> PngReader::open(std::span<const std::uint8_t> encoded, std::uint64_t max_pixels,
                                   bool indices) {
  whole_.reset();
  encoded_ = encoded;
  context_.reset(spng_ctx_new(0));
  if (!context_) return bad(BadReason::kTooLarge, "out of memory while creating a PNG decoder");
  spng_set_crc_action(context_.get(), SPNG_CRC_ERROR, SPNG_CRC_ERROR);  // in every chunk, as PIL does
  spng_set_chunk_limits(context_.get(), kChunkLimit, kChunkLimit);
  if (const int code = spng_set_png_buffer(context_.get(), encoded.data(), encoded.size()))
    return failure(code);
  spng_ihdr header{};
  if (const int code = spng_get_ihdr(context_.get(), &header)) return failure(code);
  if (header.width > kMaxSide || header.height > kMaxSide) {
    return bad(BadReason::kTooLarge, fmt::format("{} x {} pixels; the limit of a side is {}", header.width,
                                                 header.height, kMaxSide));
  }
  if (std::uint64_t{header.width} * header.height > max_pixels) {
    return bad(BadReason::kTooLarge, fmt::format("{} x {} pixels; the limit is {} pixels", header.width,
                                                 header.height, max_pixels));
  }
  width_ = header.width;
  height_ = header.height;
  color_type_ = header.color_type;
  bit_depth_ = header.bit_depth;
  interlaced_ = header.interlace_method != 0;
  indices_ = indices;
  const bool one_byte =
      bit_depth_ <= 8 && (color_type_ == SPNG_COLOR_TYPE_INDEXED || color_type_ == SPNG_COLOR_TYPE_GRAYSCALE);
  if (indices && !one_byte)
    return bad(BadReason::kUnsupported,
               "cannot be a mask: expected a PNG with a palette, or grayscale of at most 8 bits");
  const auto row_bits =
      std::uint64_t{width_} * static_cast<std::uint64_t>(channels_of(color_type_) * bit_depth_);
  raw_row_ = (row_bits + 7) / 8;
  if (std::uint64_t{raw_row_} * height_ > std::uint64_t{encoded.size()} * kDeflateRatio) {
    return bad(BadReason::kTruncated,
               fmt::format("{} bytes cannot hold {} x {} pixels", encoded.size(), width_, height_));
  }
  if (color_type_ == SPNG_COLOR_TYPE_INDEXED) {
    spng_plte table{};
    if (const int code = spng_get_plte(context_.get(), &table)) return failure(code);
    palette_ = {};  // an index beyond the palette is black
    for (std::uint32_t i = 0; i < std::min(table.n_entries, 256U); ++i) {
      palette_[i] = {table.entries[i].red, table.entries[i].green, table.entries[i].blue};
    }
  }
  return ImageSize{static_cast<std::int32_t>(width_), static_cast<std::int32_t>(height_)};
}

std::size_t PngReader::memory(Rect region, bool keep) const {
  const bool at_once = interlaced_ || !has_end_chunk(encoded_);
  return (at_once ? raw_row_ * height_ : 0) +
         (keep ? std::size_t{width_} * 3 * static_cast<std::size_t>(region.height) : 0);
}

void PngReader::free_large() {
  whole_.reset();
  if (keep_) rgb_ = {};
}

Decoded<void> PngReader::begin(Rect region, bool keep) {
  region_ = region;
  done_ = 0;
  keep_ = keep;
  // Slack: sub-byte samples are unpacked eight at a time.
  grow(raw_, raw_row_ + 8);
  grow(rgb_,
       std::size_t{width_} * 3 * static_cast<std::size_t>(keep ? region.height : kBlockRows) + kRowSlack);
  // Without IEND the file may be cut within its pixels: decoding all of them finds that out.
  if (interlaced_ || !has_end_chunk(encoded_)) {
    const std::size_t size = raw_row_ * height_;
    // Zeroed, because libspng ORs interlaced samples of less than 8 bits into the buffer.
    whole_ = std::make_unique<std::uint8_t[]>(size + 8);
    if (const int code = spng_decode_image(context_.get(), whole_.get(), size, SPNG_FMT_PNG, 0))
      return failure(code);
    return {};
  }
  if (const int code = spng_decode_image(context_.get(), nullptr, 0, SPNG_FMT_PNG, SPNG_DECODE_PROGRESSIVE)) {
    return failure(code);
  }
  for (std::int32_t y = 0; y < region.top; ++y) {
    if (const int code = spng_decode_row(context_.get(), raw_.data(), raw_row_)) return failure(code);
  }
  return {};
}

Decoded<Rows> PngReader::next() {
  const std::int32_t count = std::min(kBlockRows, region_.height - done_);
  const std::size_t stride = std::size_t{width_} * 3;
  auto* rows = rgb_.data() + (keep_ ? static_cast<std::size_t>(done_) * stride : 0);
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t y = region_.top + done_ + i;
    const std::uint8_t* raw = raw_.data();
    if (whole_) {
      raw = whole_.get() + static_cast<std::size_t>(y) * raw_row_;
    } else {
      const int code = spng_decode_row(context_.get(), raw_.data(), raw_row_);
      if (code != 0 && code != SPNG_EOI) return failure(code);
    }
    convert(raw, rows + static_cast<std::size_t>(i) * stride);
  }
  done_ += count;
  return Rows{rows + static_cast<std::ptrdiff_t>(region_.left) * 3, static_cast<std::ptrdiff_t>(stride),
              count};
}

void PngReader::convert(const std::uint8_t* raw, std::uint8_t* rgb) const {
  const auto gray = [&](std::uint32_t x, unsigned value) {
    std::fill_n(rgb + std::size_t{x} * 3, 3, static_cast<std::uint8_t>(value));
  };
  const auto sample16 = [&](std::size_t i) {
    std::uint16_t value = 0;
    std::memcpy(&value, raw + 2 * i, sizeof(value));
    return unsigned{value};
  };
  const auto index_of = [&](std::uint32_t x) {
    const unsigned bits = static_cast<unsigned>(bit_depth_) * x;
    return static_cast<unsigned>(raw[bits / 8] >> (8 - static_cast<unsigned>(bit_depth_) - bits % 8)) &
           ((1U << bit_depth_) - 1U);
  };
  if (indices_) {
    for (std::uint32_t x = 0; x < width_; ++x) gray(x, index_of(x));
    return;
  }
  const auto channels = static_cast<std::size_t>(channels_of(color_type_));
  for (std::uint32_t x = 0; x < width_; ++x) {
    const std::size_t at = std::size_t{x} * channels;
    switch (color_type_) {
      case SPNG_COLOR_TYPE_INDEXED:
        std::copy_n(palette_[index_of(x)].begin(), 3, rgb + std::size_t{x} * 3);
        break;
      case SPNG_COLOR_TYPE_GRAYSCALE:
        if (bit_depth_ == 16) {
          gray(x, std::min(sample16(x), 255U));
        } else {
          gray(x, index_of(x) * 255U / ((1U << bit_depth_) - 1U));
        }
        break;
      case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
        gray(x, bit_depth_ == 16 ? sample16(at) >> 8 : raw[at]);
        break;
      default:
        for (std::size_t c = 0; c < 3; ++c) {
          rgb[std::size_t{x} * 3 + c] =
              static_cast<std::uint8_t>(bit_depth_ == 16 ? sample16(at + c) >> 8 : raw[at + c]);
        }
    }
  }
}

}  // namespace headrace::server::decode
