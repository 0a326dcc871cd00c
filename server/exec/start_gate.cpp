#include "server/exec/start_gate.h"

namespace headrace::server::exec {

std::size_t StartGate::add_stream(std::uint32_t wait_for) {
  largest_wait_for_ = std::max(largest_wait_for_, wait_for);
  streams_.emplace_back();
  return streams_.size() - 1;
}

void StartGate::set_clients(std::size_t stream, const Clients& clients) {
  Clients& own = streams_[stream];
  total_.attached += clients.attached - own.attached;
  total_.asked += clients.asked - own.asked;
  own = clients;
}

}  // namespace headrace::server::exec
