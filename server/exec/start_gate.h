// When clients begin: once enough of them have asked for a batch (sharing.wait_for). Streams that share rows
// have one gate, so that the jobs of a sweep can wait for each other.
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
    std::uint32_t asked = 0;  ///< of these
  };

  std::size_t add_stream();  ///< returns its number
  void set(std::size_t stream, const Clients& clients, std::uint64_t now_ns);
  [[nodiscard]] Clients all() const;  ///< of all streams
  [[nodiscard]] std::size_t stream_count() const { return streams_.size(); }
  [[nodiscard]] std::uint64_t first_ask_ns() const { return first_ask_ns_; }  ///< 0: nobody has asked

  /// Open for streams that wait for this number of clients, or for fewer.
  [[nodiscard]] bool is_open(std::uint32_t wait_for) const { return wait_for <= open_for_; }
  void open(std::uint32_t wait_for);
  /// The next set of clients begins together, too.
  void close() { open_for_ = 0; }

 private:
  std::vector<Clients> streams_;
  std::uint64_t first_ask_ns_ = 0;
  std::uint32_t open_for_ = 0;
};

}  // namespace headrace::server::exec
