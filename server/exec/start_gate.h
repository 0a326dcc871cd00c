// Holds clients back until enough of them have called next() (sharing.wait_for). Streams that share rows have
// one gate, so that the jobs of a sweep can begin together; they make no batch before it opens.
//
// Thread safety: the engine's mutex guards all members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace::server::exec {

class StartGate {
 public:
  struct Clients {
    std::uint32_t attached = 0;  ///< and not fenced
    std::uint32_t asked = 0;     ///< of these, clients that have called next()
  };

  std::size_t add_stream(std::uint32_t wait_for);  ///< returns its index
  void set_clients(std::size_t stream, const Clients& clients);
  [[nodiscard]] const Clients& clients(std::size_t stream) const { return streams_[stream]; }
  [[nodiscard]] const Clients& total() const { return total_; }  ///< of all streams
  [[nodiscard]] std::size_t stream_count() const { return streams_.size(); }
  /// Rows that clients of a stream hold at most, all ranks together.
  void note_hold(std::uint64_t rows) { largest_hold_ = std::max(largest_hold_, rows); }
  [[nodiscard]] std::uint64_t largest_hold() const { return largest_hold_; }

  /// Whether streams with this `wait_for` may begin.
  [[nodiscard]] bool is_open(std::uint32_t wait_for) const { return wait_for <= open_for_; }
  [[nodiscard]] bool is_open_for_all() const { return is_open(largest_wait_for_); }
  /// Lets streams with this `wait_for`, or a smaller one, begin.
  void open(std::uint32_t wait_for) { open_for_ = std::max(open_for_, wait_for); }
  /// Makes the next set of clients wait for each other again.
  void close() { open_for_ = 1; }

 private:
  std::vector<Clients> streams_;
  Clients total_;
  std::uint32_t largest_wait_for_ = 1;
  std::uint32_t open_for_ = 1;  ///< a single client waits for nobody
  std::uint64_t largest_hold_ = 0;
};

}  // namespace headrace::server::exec
