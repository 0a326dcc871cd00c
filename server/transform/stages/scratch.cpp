#include "server/transform/stages/scratch.h"

#include <utility>

#include "server/decode/turn.h"
#include "server/transform/kernels/plane_kernels.h"
#include "server/transform/stages/render.h"

namespace headrace::server::transform {

Scratch::Scratch() : state_(std::make_unique<State>()) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;

bool Scratch::set_streamed(bool streamed) {
  return std::exchange(state_->streamed, streamed);
}

void Scratch::State::close() {
  constexpr std::size_t kLarge = decode::Turn::kLarge / 4;
  if (decoder.has_turn())
    for (auto* const buffer : {&pictures[0], &pictures[1], &middle, &upright})
      if (buffer->size() > kLarge) *buffer = {};
  decoder.close();
}

void Scratch::finish_streaming() {
  flush_streamed();
}

}  // namespace headrace::server::transform
