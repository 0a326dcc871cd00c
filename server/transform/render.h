// Executes stages: rows from the decoder, through crops and resizes, into the output row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "server/decode/decoder.h"
#include "server/transform/coefficients.h"
#include "server/transform/geometry.h"
#include "server/transform/kernels.h"

namespace headrace::server::transform {

struct Scratch::State {
  decode::Decoder decoder;
  CoefficientCache coefficients;
  std::vector<std::uint8_t> pictures[2];  // between stages
  std::vector<std::uint8_t> middle;       // after the horizontal pass
  std::vector<std::uint8_t> row, spare;
  std::vector<std::uint8_t> transposed;
  std::vector<std::uint8_t> other_channels;  // of gray
  std::vector<std::uint8_t> upright;         // before it is transposed
  std::vector<std::uint8_t> luma;            // one row
  std::vector<std::uint8_t> painted[2];      // what pixel operations make: pictures, or a row
  std::vector<std::uint8_t> planes[2];       // of a cut
  std::vector<std::int32_t> column_indices, row_indices;
  std::vector<Step> steps;
  std::vector<Stage> stages;
  bool streamed = false;  // how rows are stored
  /// Of the last cut by a plan that draws nothing: pictures of one size are all cut alike. Fields that are
  /// cut in turn have plans of their own; two that meet in one place only cost time.
  struct Kept {
    std::uint64_t plan = 0;
    decode::PixelShape shape;
    Size base;
    Stage stage;
    std::size_t copied = 0;  ///< bytes, if the row is the picture's and nothing else
  };
  std::array<Kept, 4> kept;
  [[nodiscard]] Kept& kept_of(std::uint64_t plan) { return kept[plan % kept.size()]; }
};

/// A stage's input: blocks of rows of the region that was asked for.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// Once, before next. keep: blocks stay valid and follow one another in memory with one stride.
  virtual decode::Decoded<void> begin(decode::Rect region, bool keep) = 0;
  virtual decode::Decoded<decode::Rows> next() = 0;
};

/// A stage's output. Rows may come in any order, each once; kRowSlack bytes past their end can be read.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void write(std::int32_t y, const std::uint8_t* rgb) = 0;
};

/// No arithmetic: crops, padding, nearest neighbour, flips.
decode::Decoded<void> copy_stage(const Stage& stage, RowSource& source, RowSink& sink,
                                 Scratch::State& scratch);

/// Pillow's two passes.
decode::Decoded<void> resample_stage(const Stage& stage, ResizePasses passes, RowSource& source,
                                     RowSink& sink, Scratch::State& scratch);

/// Bytes between rows of `width` pixels that kernels make.
std::size_t padded_stride(std::int32_t width);

/// All stages. decode_ns gets the time within the decoder.
decode::Decoded<void> run_stages(std::span<const Stage> stages, ResizePasses passes,
                                 const PixelFormat& format, Scratch::State& scratch, std::byte* out,
                                 std::uint64_t& decode_ns);

}  // namespace headrace::server::transform
