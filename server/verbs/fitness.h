// Whether a server can run here: the judgments of `headrace check` and `headrace doctor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "headrace/error.h"
#include "server/assembly/assemble.h"
#include "server/config/config.h"

namespace headrace::server::verbs {

enum class Health : std::uint8_t {
  kGood,
  kPoor,     ///< a server can run
  kUnknown,  ///< it could not be judged for certain; never shown as good
  kBroken    ///< a server cannot run
};

struct Finding {
  std::string what;  ///< "directory", "HTTP port", "stream train"
  Health health = Health::kGood;
  std::string found;
  std::string remedy;                        ///< empty: nothing is to be done, or `found` says it
  ErrorCode code = ErrorCode::kEnvironment;  ///< if broken

  /// REQUIRES: it is broken.
  [[nodiscard]] Error error() const;
};

Finding good(std::string what, std::string found);
/// The message says what to do.
Finding broken(std::string what, const Error& error);

/// The server that runs in a directory now. A checked restart ends it before the next one starts.
struct RunningServer {
  std::filesystem::path directory;
  std::uint64_t bytes = 0;      ///< of its rings, windows and caches, which it frees when it ends
  std::string metrics_url;      ///< empty: it has none
  std::optional<Error> silent;  ///< it did not answer: bytes and URL are unknown

  /// nullopt: no server runs there.
  static std::optional<RunningServer> find(const std::filesystem::path& directory);
};

/// Bytes of all rings.
struct RingBytes {
  std::uint64_t first = 0;  ///< with one client for each stream
  std::uint64_t most = 0;   ///< with all clients
};
RingBytes rings_of(const assembly::Assembly& assembly);
/// The memory that is available once the running server has ended. If it did not answer: beside it.
ring::MemoryHeadroom room_without(const std::optional<RunningServer>& running);

/// The memory for the rings with one client each, and for windows and caches, compared with room_without().
Finding judge_memory(const assembly::Assembly& assembly, const std::optional<RunningServer>& running);
Finding judge_directory(const config::ServerConfig& server, const std::optional<RunningServer>& running);
/// Binds the HTTP port for a moment, unless the running server has it.
Finding judge_port(const config::ServerConfig& server, const std::optional<RunningServer>& running);
/// Makes samples of the first epoch: a few, or all. The samples of a live stream are yet to come.
Finding judge_samples(const exec::StreamSetup& setup, const config::Config& config, bool all);

}  // namespace headrace::server::verbs
