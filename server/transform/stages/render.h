// Runs stages: rows from the decoder, through crops and resizes, into the output row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "server/decode/decoder.h"
#include "server/transform/kernels/coefficients.h"
#include "server/transform/kernels/row_kernels.h"
#include "server/transform/stages/scratch.h"
#include "server/transform/stages/stage.h"

namespace headrace::server::transform {

struct Scratch::State {
  decode::Decoder decoder;
  CoefficientCache coefficients;
  std::vector<std::uint8_t> pictures[2];  // between stages
  std::vector<std::uint8_t> middle;       // after the horizontal pass
  std::vector<std::uint8_t> row, spare;
  std::vector<std::uint8_t> transposed;
  std::vector<std::uint8_t> other_channels;  // of a gray image
  std::vector<std::uint8_t> upright;         // before the transposition
  std::vector<std::uint8_t> luma;            // one row
  std::vector<std::uint8_t> painted[2];      // output of pixel operations: pictures, or a row
  std::vector<std::uint8_t> planes[2];       // of a cut
  std::vector<std::int32_t> column_indices, row_indices;
  std::vector<Step> steps;
  Stages stages;
  bool streamed = false;  // rows are stored so as to bypass the caches
  /// The last cut by a plan that draws nothing: pictures of one size are all cut alike, so the next one needs
  /// no checks. Fields that alternate have plans of their own; a collision of two plans only costs time.
  struct Kept {
    std::uint64_t plan = 0;
    decode::PixelShape shape;
    std::size_t bytes = 0;  ///< of the picture
    Size base;
    Stage stage;
    std::size_t copied = 0;  ///< of them, if the row is an exact copy of the picture; else 0
  };
  std::array<Kept, 4> kept;
  /// The image is made: closes the decoder, and frees what a large image needed.
  void close();
  [[nodiscard]] Kept& kept_of(std::uint64_t plan) { return kept[plan % kept.size()]; }
};

/// A stage's input: blocks of rows of the requested region.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Call it once, before next. keep: blocks stay valid and are contiguous in memory with one stride.
  virtual decode::Decoded<void> begin(decode::Rect region, bool keep) = 0;
  virtual decode::Decoded<decode::Rows> next() = 0;
};

/// A stage's output. Rows may come in any order, each once; kRowSlack bytes past their end are readable.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void write(std::int32_t y, const std::uint8_t* rgb) = 0;
};

/// For stages without arithmetic: crops, padding, nearest neighbor, flips.
decode::Decoded<void> copy_stage(const Stage& stage, RowSource& source, RowSink& sink,
                                 Scratch::State& scratch);

/// Pillow's two passes.
decode::Decoded<void> resample_stage(const Stage& stage, ResizePasses passes, RowSource& source,
                                     RowSink& sink, Scratch::State& scratch);

/// Bytes from one row of `width` pixels to the next in buffers that kernels write.
std::size_t padded_stride(std::int32_t width);

/// Runs all stages. decode_ns receives the time spent in the decoder.
decode::Decoded<void> run_stages(std::span<const Stage> stages, ResizePasses passes,
                                 const PixelFormat& format, Scratch::State& scratch, std::byte* out,
                                 std::uint64_t& decode_ns);

}  // namespace headrace::server::transform
