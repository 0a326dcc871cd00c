#include "server/exec/start_gate.h"

#include <algorithm>

namespace headrace::server::exec {

std::size_t StartGate::add_stream() {
  streams_.emplace_back();
  return streams_.size() - 1;
}

void StartGate::set_clients(std::size_t stream, const Clients& clients, std::uint64_t now_ns) {
  streams_[stream] = clients;
  if (total().asked == 0) {
    first_ask_ns_ = 0;
  } else if (first_ask_ns_ == 0) {
    first_ask_ns_ = now_ns;
  }
}

StartGate::Clients StartGate::total() const {
  Clients sum;
  for (const Clients& clients : streams_) {
    sum.attached += clients.attached;
    sum.asked += clients.asked;
  }
  return sum;
}

void StartGate::open(std::uint32_t wait_for) {
  open_for_ = std::max(open_for_, wait_for);
}

}  // namespace headrace::server::exec
