// A stage of bare pixels that only moves them, without rows in between: a window of the picture is mirrored,
// turned and converted straight into the row of the batch. The same bytes as run_stages().
#pragma once

#include <cstddef>

#include "server/decode/decoder.h"
#include "server/transform/render.h"

namespace headrace::server::transform {

/// Whether `stages` of this image can be done by run_cut(). `moves_only`: see Plan::Impl.
bool is_cut(bool moves_only, std::span<const Stage> stages, const decode::ImageData& image);

/// `image`: bare pixels that a decoder has opened, and so as many as their shape says.
void run_cut(const Stage& stage, const decode::ImageData& image, const PixelFormat& format,
             Scratch::State& scratch, std::byte* out);

}  // namespace headrace::server::transform
