// Lets one process feed a stream through the socket <directory>/feed-<source>.sock.
//
// Protocol: SOCK_SEQPACKET, one JSON object per packet. The first peer that sends a hello is the feeder;
// there is no second one.
//   feeder: {"feed": 1}
//   server: {"feed": 1, "slots": S, "slot_bytes": N, "fields": [{"name", "values", "offsets"}, ...]}, and the
//           slots' memory as a descriptor. Slot s begins at s * N; a field's rows begin at `values`; a ragged
//           field's rows + 1 offsets (int64) begin at `offsets`. All slots are free.
//   feeder: {"batch": b, "slot": s, "rows": r}   numbers continue through all epochs, each once, in order
//   server: {"free": s}                          its rows were read: the feeder owns the slot again
//   feeder: {"end": "why", "done": bool}         no more batches; done: the data ended as planned
//   server: {"served": true}                     then: all clients were granted everything and released it
// After an "error" the server closes the connection. Anything else that the feeder sends ends the stream, as
// its disconnection does: clients get the earlier batches, then the reason.
//
// Thread safety: any thread may call the public members. The feeder's own thread waits only in poll().
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"
#include "server/exec/engine.h"
#include "server/session/refusals.h"
#include "server/source/formats/feed.h"

namespace headrace::server::session {

class Feeder {
 public:
  /// Allocates the feed's memory, binds the socket, and starts the thread that waits for the feeder of
  /// `stream`. kNotEnoughMemory: for the feed. kEnvironment: no socket or no descriptor.
  static Result<std::unique_ptr<Feeder>> start(std::shared_ptr<source::Feed> feed,
                                               const std::filesystem::path& directory, exec::Engine& engine,
                                               std::size_t stream);
  ~Feeder();  ///< disconnects and joins, without delay
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  /// Whether the stream ended before the planned end, so that its clients should get the reason. Waits at
  /// most `patience` for the feeder's end.
  [[nodiscard]] bool ended_early(std::chrono::milliseconds patience) const;

 private:
  Feeder(std::shared_ptr<source::Feed> feed, exec::Engine& engine, std::size_t stream)
      : feed_(std::move(feed)), engine_(engine), stream_(stream) {}
  void run();
  /// The connection of the first peer that sends a hello; none if the server stops first.
  ring::UniqueFd accept_feeder();
  Result<void> handshake(int socket);
  /// Accepts batches until the end; returns the reason for it.
  std::string receive(int socket);
  /// Processes one packet. Returns the reason if it is the last one.
  Result<std::optional<std::string>> handle_packet(const std::string& packet);
  void await_served(int socket);
  /// True: readable, or end of file; false: the server stops, or `timeout` has passed.
  [[nodiscard]] bool wait(int fd, std::chrono::milliseconds timeout) const;

  const std::shared_ptr<source::Feed> feed_;
  exec::Engine& engine_;
  const std::size_t stream_;
  std::filesystem::path path_;
  ring::UniqueFd listener_, stop_;
  std::int64_t pid_ = 0;
  bool done_ = false;
  Refusals refused_;
  enum class State : std::uint8_t { kFeeds, kDone, kEndedEarly };
  std::atomic<State> state_{State::kFeeds};
  std::thread thread_;
};

}  // namespace headrace::server::session
