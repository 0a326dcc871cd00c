// What augmentations draw, and how it is told: the part of draw_steps that is about colours.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/sampler/philox.h"
#include "server/transform/geometry.h"

namespace headrace::server::transform {

void draw(const ColorJitter& t, sampler::Draws random, Step& step);
void draw(const RandomGrayscale& t, sampler::Draws random, Step& step);
/// `size`: of the picture, at scale 1.
void draw(const RandAugment& t, decode::ImageSize size, sampler::Draws random, Step& step);
void draw(const TrivialAugmentWide& t, decode::ImageSize size, sampler::Draws random, Step& step);
void draw(const GaussianBlur& t, sampler::Draws random, Step& step);
void draw(const RandomErasing& t, decode::ImageSize size, sampler::Draws random, Step& step);

nlohmann::json describe(const ColorJitter& t, const Step& step);
nlohmann::json describe(const RandomGrayscale& t, const Step& step);
/// The operations by torchvision's names, with its magnitudes.
nlohmann::json describe(const RandAugment& t, const Step& step);
nlohmann::json describe(const TrivialAugmentWide& t, const Step& step);

nlohmann::json describe(const GaussianBlur& t, const Step& step);
nlohmann::json describe(const RandomErasing& t, const Step& step);

}  // namespace headrace::server::transform
