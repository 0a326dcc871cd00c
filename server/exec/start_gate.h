// Holds clients back until enough of them have called next() (sharing.wait_for). Streams that share rows have
// one gate, so that the jobs of a sweep can begin together.
//
// Thread safety: the engine's mutex guards all members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace::server::exec {

class StartGate {
 public:
  struct Clients {
    std::uint32_t attached = 0;
    std::uint32_t asked = 0;  ///< of these, clients that have called next()
  };

  std::size_t add_stream();  ///< returns the new stream's index
  void set_clients(std::size_t stream, const Clients& clients, std::uint64_t now_ns);
  [[nodiscard]] Clients total() const;  ///< of all streams
  [[nodiscard]] std::size_t stream_count() const { return streams_.size(); }
  [[nodiscard]] std::uint64_t first_ask_ns() const {
    return first_ask_ns_;
  }  ///< 0: no client has called next()

  /// Whether streams with this `wait_for` may begin.
  [[nodiscard]] bool is_open(std::uint32_t wait_for) const { return wait_for <= open_for_; }
  /// Lets streams with this `wait_for`, or a smaller one, begin.
  void open(std::uint32_t wait_for);
  /// Makes the next set of clients wait for each other again.
  void close() { open_for_ = 0; }

 private:
  std::vector<Clients> streams_;
  std::uint64_t first_ask_ns_ = 0;
  std::uint32_t open_for_ = 0;
};

}  // namespace headrace::server::exec
