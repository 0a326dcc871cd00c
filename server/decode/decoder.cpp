#include "server/decode/decoder.h"

#include <fmt/format.h>
#include <algorithm>

#include <array>

#include "server/decode/jpeg.h"
#include "server/decode/png.h"
#include "server/decode/raw.h"
#include "server/decode/stop.h"
#include "server/decode/turn.h"

namespace headrace::server::decode {

std::string_view name_of(BadReason reason) {
  constexpr std::array<std::string_view, 10> kNames = {"none",     "empty",     "unknown_format", "truncated",
                                                       "corrupt",  "too_large", "unsupported",    "warning",
                                                       "mismatch", "unreadable"};
  const auto i = static_cast<std::size_t>(reason);
  return i < kNames.size() ? kNames[i] : "corrupt";
}

std::string to_string(const Bad& bad) {
  return fmt::format("{} ({})", name_of(bad.reason), bad.detail);
}

struct Decoder::Impl {
  Impl() = default;
  ~Impl() { end_turn(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  enum class Format : std::uint8_t { kNone, kJpeg, kPng, kRaw };
  JpegReader jpeg;
  PngReader png;
  RawReader raw;
  Format format = Format::kNone;
  Turn turn;
  std::int32_t left = 0;  // rows until the turn ends; those that are kept do not count

  /// Calls `use` with the reader of the open image.
  template <class F>
  auto with_reader(F use) {
    if (format == Format::kJpeg) return use(jpeg);
    return format == Format::kRaw ? use(raw) : use(png);
  }

  void end_turn() {
    if (turn.is_empty()) return;
    with_reader([](auto& reader) { reader.free_large(); });
    turn.end();
  }
};

Decoder::Decoder() : impl_(std::make_unique<Impl>()) {}
Decoder::~Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;

Decoded<ImageSize> Decoder::open(const ImageData& image, std::uint64_t max_pixels) {
  const std::span<const std::uint8_t> encoded = image.bytes;
  constexpr std::array<std::uint8_t, 3> kJpegStart = {0xFF, 0xD8, 0xFF};
  constexpr std::array<std::uint8_t, 8> kPngStart = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const auto starts_with = [&](const auto& magic) {
    return encoded.size() >= magic.size() && std::equal(magic.begin(), magic.end(), encoded.begin());
  };
  close();
  impl_->format = Impl::Format::kNone;
  if (image.pixels.width != 0) {
    auto size = impl_->raw.open(encoded, image.pixels, max_pixels);
    if (size) impl_->format = Impl::Format::kRaw;
    return size;
  }
  if (encoded.empty()) return bad(BadReason::kEmpty, "the file has no bytes");
  if (starts_with(kJpegStart)) {
    if (image.indices)
      return bad(BadReason::kUnsupported, "a JPEG cannot be a mask: its values are not exact; store a PNG");
    auto size = impl_->jpeg.open(encoded, max_pixels);
    if (size) impl_->format = Impl::Format::kJpeg;
    return size;
  }
  if (starts_with(kPngStart)) {
    auto size = impl_->png.open(encoded, max_pixels, image.indices);
    if (size) impl_->format = Impl::Format::kPng;
    return size;
  }
  return bad(BadReason::kUnknownFormat, "neither a JPEG nor a PNG file by its first bytes");
}

Decoded<void> Decoder::begin(Rect region, bool keep, std::size_t more) {
  return impl_->with_reader([&](auto& reader) -> Decoded<void> {
    auto turn = Turn::take(reader.memory(region, keep) + more);
    if (!turn) return tl::make_unexpected(std::move(turn.error()));
    impl_->turn = std::move(*turn);
    impl_->left = keep || more >= Turn::kLarge ? 0 : region.height;
    return reader.begin(region, keep);
  });
}

Decoded<Rows> Decoder::next() {
  throw_if_stopped();
  auto rows = impl_->with_reader([](auto& reader) { return reader.next(); });
  if (rows && impl_->left > 0 && (impl_->left -= rows->count) == 0) impl_->end_turn();
  return rows;
}

void Decoder::close() {
  impl_->end_turn();
}

bool Decoder::has_turn() const {
  return !impl_->turn.is_empty();
}

bool Decoder::warned() const {
  return impl_->format == Impl::Format::kJpeg && impl_->jpeg.warnings() > 0;
}
std::string_view Decoder::warning() const {
  return impl_->jpeg.warning();
}

}  // namespace headrace::server::decode
