// Lets one process feed a stream: the door <directory>/feed-<source>.sock and what is said through it.
//
// SOCK_SEQPACKET, a JSON object a packet. The first peer that says hello is the feeder; nobody comes after
// it.
//   feeder: {"feed": 1}
//   server: {"feed": 1, "slots": S, "slot_bytes": N, "fields": [{"name", "values", "offsets"}, ...]}, and the
//           slots' memory as a descriptor. Slot s begins at s * N; a field's rows lie at `values`, rows + 1
//           offsets (int64) of a ragged one at `offsets`. All slots are free.
//   feeder: {"batch": b, "slot": s, "rows": r}     batches count through all epochs, each once, in order
//   server: {"free": s}                            its rows were read: the slot is the feeder's again
//   feeder: {"end": "why", "done": bool}           no more batches; done: as it was meant
//   server: {"served": true}                       after that: all clients had everything and let go of it
// An "error" from the server, and its end of the connection, are its last words. Whatever else the feeder
// says ends the stream, as its own end does: clients get what came before, then the reason.
//
// Thread safety: public members, any thread. Its thread waits in poll() alone.
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
#include "server/source/formats/feed.h"

namespace headrace::server::session {

class Feeder {
 public:
  /// Takes the feed's memory, binds the socket, and waits for the feeder of `stream`. kNotEnoughMemory,
  /// kEnvironment.
  static Result<std::unique_ptr<Feeder>> start(std::shared_ptr<source::Feed> feed,
                                               const std::filesystem::path& directory, exec::Engine& engine,
                                               std::size_t stream);
  ~Feeder();  ///< hangs up and joins; at once
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  /// Whether the stream ended otherwise than it was meant to: its clients should be told why. Waits at most
  /// `patience` for the feeder's end.
  [[nodiscard]] bool broke_off(std::chrono::milliseconds patience) const;

 private:
  Feeder(std::shared_ptr<source::Feed> feed, exec::Engine& engine, std::size_t stream)
      : feed_(std::move(feed)), engine_(engine), stream_(stream) {}
  void run();
  /// The connection of whoever says hello; none if the server stops first.
  ring::UniqueFd admit();
  Result<void> greet(int socket);
  /// Takes batches in until the end; gives it the reason.
  std::string receive(int socket);
  /// One packet. Gives the reason if it is the last one.
  Result<std::optional<std::string>> take(const std::string& packet);
  void await_served(int socket);
  /// Readable, or an end; false: the server stops, or `timeout` is over.
  [[nodiscard]] bool wait(int fd, std::chrono::milliseconds timeout) const;

  const std::shared_ptr<source::Feed> feed_;
  exec::Engine& engine_;
  const std::size_t stream_;
  std::filesystem::path path_;
  ring::UniqueFd listener_, stop_;
  std::int64_t pid_ = 0;
  bool done_ = false;
  enum class State : std::uint8_t { kFeeds, kDone, kBrokeOff };
  std::atomic<State> state_{State::kFeeds};
  std::thread thread_;
};

}  // namespace headrace::server::session
