// Codecs of arguments that several transforms share.
#pragma once

#include <array>
#include <string>

#include "server/described/names.h"
#include "server/transform/kernels/pixel_ops.h"
#include "server/transform/plan.h"

namespace headrace::server::transform {

using described::fraction;
described::Codec<std::int32_t> side();
/// [height, width], or one number for both.
described::Codec<Size> size();
described::Codec<Interpolation> interpolation();
/// "nearest" or "bilinear".
described::Codec<Interpolation> warp_interpolation();
/// [red, green, blue], or one number for all.
described::Codec<std::array<std::uint8_t, 3>> fill();
/// [smallest, largest], above 0.
described::Codec<Bounds> range();
/// [smallest, largest], each from `least` to `most`. `what`: the range in messages.
described::Codec<Bounds> range(std::optional<double> least, std::optional<double> most, const char* what);

/// "NAME: KEY [LOW, HIGH] must rise within WHERE"; empty: it does. The range includes `low` unless it is
/// `open`.
std::string check_range(const char* name, const char* key, const Bounds& bounds, double low, double high,
                        const char* where, bool open = false);

}  // namespace headrace::server::transform
