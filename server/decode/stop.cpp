#include "server/decode/stop.h"

namespace headrace::server::decode {
namespace {

thread_local const std::atomic<bool>* current = nullptr;

}  // namespace

StopOn::StopOn(const std::atomic<bool>& flag) {
  current = &flag;
}
StopOn::~StopOn() {
  current = nullptr;
}

bool must_stop() noexcept {
  return current != nullptr && current->load(std::memory_order_relaxed);
}

void throw_if_stopped() {
  if (must_stop()) throw Stopped();
}

}  // namespace headrace::server::decode
