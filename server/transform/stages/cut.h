// Stages of bare pixels that only move them, without intermediate rows: a window of the picture is mirrored,
// turned and converted straight into the row of the batch. The bytes equal run_stages()'s.
#pragma once

#include <cstddef>

#include "server/decode/decoder.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {

/// Whether run_cut() can run `stages` on this image. `moves_only`: see Plan::Impl.
bool is_cut(bool moves_only, std::span<const Stage> stages, const decode::ImageData& image);

/// The picture's bytes, if the row is an exact copy of them; else 0.
std::size_t copied_bytes(const Stage& stage, const decode::ImageData& image, const PixelFormat& format);

/// `image`: bare pixels that a decoder has opened, so there are as many bytes as their shape requires.
void run_cut(const Stage& stage, const decode::ImageData& image, const PixelFormat& format,
             Scratch::State& scratch, std::byte* out);

}  // namespace headrace::server::transform
