// The parts of a compiled chain, shared by the files that implement Plan.
#pragma once

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "clientlib/ring/futex.h"
#include "server/transform/draw_steps.h"
#include "server/transform/kernels/row_kernels.h"
#include "server/transform/plan.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {

struct Plan::Impl {
  PlanConfig config;
  Size size;
  PixelFormat format;
  std::size_t prefix = 0;    ///< transforms that prepare() applies
  PixelFormat prepared;      ///< of the prepared pixels
  bool drawn = false;        ///< a step depends on the DrawKey
  std::uint64_t number = 0;  ///< unique among the plans of this process
  bool moves_only = false;   ///< geometry, and `format` for the values: no transform changes colors

  [[nodiscard]] decode::ImageData open_as(const decode::ImageData& data) const {
    decode::ImageData image = data;
    image.indices = config.mask;
    return image;
  }

  decode::Decoded<decode::ImageSize> open(const decode::ImageData& data, decode::Decoder& decoder,
                                          std::uint64_t& decode_ns) const;
  /// Without a crop or a resize the row has room only for images of `config.input`.
  [[nodiscard]] bool fits_input(decode::ImageSize image) const {
    return config.input.height == 0 || image == decode::ImageSize{config.input.width, config.input.height};
  }
  [[nodiscard]] decode::Decoded<void> check_input(decode::ImageSize image) const;
  /// The size of the image before it was prepared.
  [[nodiscard]] decode::ImageSize original(const Prepared& image) const {
    return {image.base.width * config.unit, image.base.height * config.unit};
  }
  /// The same for finish(): opens the prepared pixels and draws the remaining steps into scratch.steps.
  decode::Decoded<decode::ImageSize> open_prepared(const Prepared& image, DrawKey key,
                                                   Scratch::State& scratch) const;
  /// Applies scratch.steps to `image`, which the decoder has open. max_pixels limits all stages but the last,
  /// whose row has a size bounded by compile().
  decode::Decoded<void> run(const decode::ImageData& image, decode::ImageSize input, Scratch::State& scratch,
                            std::byte* out, std::uint64_t& decode_ns) const;

  /// Checks all stages but the last against max_pixels.
  [[nodiscard]] decode::Decoded<void> check_between(const Stages& stages) const;
  /// Times `work` and reports how it ended.
  template <class F>
  RenderReport report(Scratch::State& scratch, F&& work) const {
    RenderReport report;
    const auto start = ring::monotonic_ns();
    const auto refuse = [&](BadReason reason, std::string detail) {
      report.bad = reason;
      report.detail = std::move(detail);
    };
    try {
      auto done = work(report);
      report.warned = scratch.decoder.warned();
      if (!done) {
        refuse(done.error().reason, std::move(done.error().detail));
      } else if (report.warned && config.warnings_are_bad) {
        refuse(BadReason::kWarning, std::string(scratch.decoder.warning()));
      }
    } catch (const std::bad_alloc&) {
      refuse(BadReason::kTooLarge, "no memory for the image");
    } catch (const std::length_error&) {
      refuse(BadReason::kTooLarge, "no memory for the image");
    }
    scratch.close();
    const auto total = ring::monotonic_ns() - start;
    report.transform_ns = total - std::min(total, report.decode_ns);
    return report;
  }
};

}  // namespace headrace::server::transform
