#include "server/decode/raw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "server/decode/grow.h"

namespace headrace::server::decode {

Decoded<void> RawReader::check(std::span<const std::uint8_t> bytes, const PixelShape& shape,
                               std::uint64_t max_pixels) {
  const auto side_is_fine = [](std::int32_t side) {
    return side >= 1 && side <= static_cast<std::int32_t>(kMaxSide);
  };
  if (!side_is_fine(shape.width) || !side_is_fine(shape.height) ||
      (shape.channels != 1 && shape.channels != 3))
    return bad(BadReason::kUnsupported,
               fmt::format("pixels of {} x {} with {} channels", shape.width, shape.height, shape.channels));
  const std::uint64_t pixels =
      static_cast<std::uint64_t>(shape.width) * static_cast<std::uint64_t>(shape.height);
  if (pixels > max_pixels)
    return bad(BadReason::kTooLarge,
               fmt::format("{} x {} pixels, max_pixels is {}", shape.width, shape.height, max_pixels));
  const std::uint64_t needed = pixels * static_cast<std::uint64_t>(shape.channels);
  if (bytes.size() < needed)
    return bad(BadReason::kTruncated, fmt::format("{} bytes of {} x {} x {} pixels", bytes.size(),
                                                  shape.channels, shape.height, shape.width));
  return {};
}

Decoded<ImageSize> RawReader::open(std::span<const std::uint8_t> bytes, const PixelShape& shape,
                                   std::uint64_t max_pixels) {
  if (auto fine = check(bytes, shape, max_pixels); !fine) return tl::make_unexpected(std::move(fine.error()));
  bytes_ = bytes;
  shape_ = shape;
  return ImageSize{shape.width, shape.height};
}

std::size_t RawReader::memory(Rect region, bool keep) const {
  if (!keep || (shape_.channels == 3 && !shape_.planar)) return 0;
  return static_cast<std::size_t>(region.width) * 3 * static_cast<std::size_t>(region.height);
}

Decoded<void> RawReader::begin(Rect region, bool keep) {
  region_ = region;
  keep_ = keep;
  done_ = 0;
  const std::int32_t rows = keep ? region.height : std::min(region.height, kBlockRows);
  if (in_place(region.top, region.top + region.height - 1) == nullptr)
    grow(rows_, static_cast<std::size_t>(region.width) * 3 * static_cast<std::size_t>(rows) + kRowSlack);
  return {};
}

const std::uint8_t* RawReader::in_place(std::int32_t y, std::int32_t last) const {
  if (shape_.channels != 3 || shape_.planar) return nullptr;
  const auto offset = [&](std::int32_t row, std::int32_t column) {
    return 3 * (static_cast<std::size_t>(row) * static_cast<std::size_t>(shape_.width) +
                static_cast<std::size_t>(column));
  };
  if (offset(last, region_.left + region_.width) + kRowSlack > bytes_.size()) return nullptr;
  return bytes_.data() + offset(y, region_.left);
}

void RawReader::copy_row(std::int32_t y, std::uint8_t* rgb) const {
  const auto width = static_cast<std::size_t>(shape_.width);
  const auto at = static_cast<std::size_t>(y) * width + static_cast<std::size_t>(region_.left);
  const auto count = static_cast<std::size_t>(region_.width);
  if (shape_.channels == 3 && !shape_.planar) {
    std::memcpy(rgb, bytes_.data() + at * 3, count * 3);
    return;
  }
  const std::size_t plane = shape_.channels == 1 ? 0 : width * static_cast<std::size_t>(shape_.height);
  const std::uint8_t* red = bytes_.data() + at;
  for (std::size_t x = 0; x < count; ++x) {
    rgb[3 * x] = red[x];
    rgb[3 * x + 1] = red[x + plane];
    rgb[3 * x + 2] = red[x + 2 * plane];
  }
}

Decoded<Rows> RawReader::next() {
  const std::int32_t count = std::min(kBlockRows, region_.height - done_);
  const std::int32_t row = region_.top + done_;
  // Kept blocks are contiguous: either none of them is copied or all are.
  const std::int32_t last = keep_ ? region_.top + region_.height - 1 : row + count - 1;
  if (const std::uint8_t* there = in_place(row, last); there != nullptr) {
    done_ += count;
    return Rows{there, static_cast<std::ptrdiff_t>(shape_.width) * 3, count};
  }
  const std::size_t stride = static_cast<std::size_t>(region_.width) * 3;
  std::uint8_t* first = rows_.data() + (keep_ ? static_cast<std::size_t>(done_) * stride : 0);
  for (std::int32_t i = 0; i < count; ++i) copy_row(row + i, first + static_cast<std::size_t>(i) * stride);
  done_ += count;
  return Rows{first, static_cast<std::ptrdiff_t>(stride), count};
}

}  // namespace headrace::server::decode
