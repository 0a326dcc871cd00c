#include <array>
#include <cstring>
#include <optional>

#include "clientlib/pixels/colors.h"
#include "clientlib/ring/futex.h"
#include "server/decode/grow.h"
#include "server/transform/stages/pixel_sink.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {
namespace {

using decode::Decoded;
using decode::ImageSize;
using decode::Rect;
using decode::Rows;

class DecoderSource final : public RowSource {
 public:
  DecoderSource(decode::Decoder& decoder, std::size_t more, std::uint64_t& ns)
      : decoder_(decoder), more_(more), ns_(ns) {}

  Decoded<void> begin(Rect region, bool keep) override {
    const auto start = ring::monotonic_ns();
    auto result = decoder_.begin(region, keep, more_);
    ns_ += ring::monotonic_ns() - start;
    return result;
  }
  Decoded<Rows> next() override {
    const auto start = ring::monotonic_ns();
    auto result = decoder_.next();
    ns_ += ring::monotonic_ns() - start;
    return result;
  }

 private:
  decode::Decoder& decoder_;
  std::size_t more_;
  std::uint64_t& ns_;
};

// An image between two stages.
class Picture final : public RowSource, public RowSink {
 public:
  Picture(std::vector<std::uint8_t>& pixels, ImageSize size)
      : pixels_(pixels),
        width_bytes_(static_cast<std::size_t>(size.width) * 3),
        height_(static_cast<std::size_t>(size.height)) {
    decode::grow(pixels_, width_bytes_ * static_cast<std::size_t>(size.height) + decode::kRowSlack);
  }

  void write(std::int32_t y, const std::uint8_t* rgb) override {
    std::memcpy(pixels_.data() + static_cast<std::size_t>(y) * width_bytes_, rgb, width_bytes_);
  }
  /// Passes on its columns as rows.
  void transpose(RowSink& sink, std::vector<std::uint8_t>& row) const {
    const std::size_t width = width_bytes_ / 3, height = height_;
    decode::grow(row, height * 3 + decode::kRowSlack);
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t y = 0; y < height; ++y)
        std::memcpy(row.data() + 3 * y, pixels_.data() + y * width_bytes_ + 3 * x, 3);
      sink.write(static_cast<std::int32_t>(x), row.data());
    }
  }
  Decoded<void> begin(Rect region, bool) override {
    region_ = region;
    done_ = 0;
    return {};
  }
  Decoded<Rows> next() override {
    const std::int32_t count = std::min(decode::kBlockRows, region_.height - done_);
    const std::int32_t row = region_.top + done_;
    done_ += count;
    return Rows{pixels_.data() + static_cast<std::size_t>(row) * width_bytes_ +
                    static_cast<std::size_t>(region_.left) * 3,
                static_cast<std::ptrdiff_t>(width_bytes_), count};
  }

 private:
  std::vector<std::uint8_t>& pixels_;
  std::size_t width_bytes_, height_;
  Rect region_;
  std::int32_t done_ = 0;
};

// The last stage's output: converts to dtype and layout row by row, while the row is in the cache.
class OutputSink final : public RowSink {
 public:
  OutputSink(const PixelFormat& format, ImageSize size, std::byte* out, Scratch::State& scratch)
      : format_(format),
        size_(size),
        out_(out),
        row_bytes_(static_cast<std::size_t>(size.width) * size_of(format.dtype)),
        spare_(format.channels == 1
                   ? reinterpret_cast<std::byte*>(decode::grow(scratch.other_channels, row_bytes_))
                   : nullptr),
        streamed_(scratch.streamed),
        luma_(format.luma ? decode::grow(scratch.luma, padded_stride(size.width)) : nullptr) {}

  void write(std::int32_t y, const std::uint8_t* rgb) override {
    const auto row = static_cast<std::size_t>(y);
    const std::size_t plane = row_bytes_ * static_cast<std::size_t>(size_.height);
    if (luma_ != nullptr) rgb = to_luma(rgb);
    if (spare_ != nullptr)
      return write_pixels(format_, rgb, size_.width, {out_ + row * row_bytes_, spare_, spare_}, false);
    const RowTarget target = format_.layout == PixelLayout::kNchw
                                 ? RowTarget{out_ + row * row_bytes_, out_ + plane + row * row_bytes_,
                                             out_ + 2 * plane + row * row_bytes_}
                                 : RowTarget{out_ + row * row_bytes_ * 3, nullptr, nullptr};
    write_pixels(format_, rgb, size_.width, target, streamed_);
  }

 private:
  const std::uint8_t* to_luma(const std::uint8_t* rgb) {
    for (std::size_t x = 0; x < static_cast<std::size_t>(size_.width); ++x, rgb += 3)
      std::memset(luma_ + 3 * x, pixels::luma_of(rgb[0], rgb[1], rgb[2]), 3);
    return luma_;
  }

  const PixelFormat& format_;
  ImageSize size_;
  std::byte* out_;
  std::size_t row_bytes_;
  std::byte* spare_;  // receives the second and third of equal channels, for which the row has no room
  bool streamed_;
  std::uint8_t* luma_;  // a row
};

}  // namespace

Decoded<void> run_stages(std::span<const Stage> stages, ResizePasses passes, const PixelFormat& format,
                         Scratch::State& scratch, std::byte* out, std::uint64_t& decode_ns) {
  DecoderSource decoder(scratch.decoder, bytes_between(stages, passes), decode_ns);
  OutputSink last(format, stages.back().output(), out, scratch);
  const auto run_upright = [&](const Stage& stage, RowSource& source, RowSink& sink) {
    return stage.resized && stage.interpolation != Interpolation::kNearest
               ? resample_stage(stage, passes, source, sink, scratch)
               : copy_stage(stage, source, sink, scratch);
  };
  const auto run_turned = [&](const Stage& stage, RowSource& source, RowSink& sink) -> Decoded<void> {
    if (!stage.transposed) return run_upright(stage, source, sink);
    Picture upright(scratch.upright, {stage.window.width, stage.window.height});
    if (auto done = run_upright(stage, source, upright); !done) return done;
    upright.transpose(sink, scratch.row);
    return {};
  };
  const auto run_stage = [&](const Stage& stage, RowSource& source, RowSink& sink) -> Decoded<void> {
    if (stage.ops.empty()) return run_turned(stage, source, sink);
    PixelSink colored(stage.ops, stage.output(), sink, scratch);
    if (auto done = run_turned(stage, source, colored); !done) return done;
    colored.finish();
    return {};
  };
  if (stages.size() == 1) return run_stage(stages[0], decoder, last);
  std::array<std::optional<Picture>, 2> pictures;  // the input and the output of a stage
  for (std::size_t i = 0; i < stages.size(); ++i) {
    RowSource& source = i == 0 ? static_cast<RowSource&>(decoder) : *pictures[(i + 1) % 2];
    RowSink* sink = &last;
    if (i + 1 < stages.size()) sink = &pictures[i % 2].emplace(scratch.pictures[i % 2], stages[i].output());
    if (auto done = run_stage(stages[i], source, *sink); !done) return done;
  }
  return {};
}

}  // namespace headrace::server::transform
