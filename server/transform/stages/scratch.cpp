#include "server/transform/stages/scratch.h"

#include <utility>

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

void Scratch::finish_streaming() {
  flush_streamed();
}

}  // namespace headrace::server::transform
