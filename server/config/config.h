// The configuration of a server as plain structs, and how it is read: YAML, then environment and flags, then
// the JSON Schema, then the checks that a schema cannot express. All problems are reported together, each
// with its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "clientlib/base/peer.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "server/config/samplers.h"
#include "server/config/sources.h"
#include "server/described/description.h"
#include "server/described/units.h"
#include "server/log/log.h"
#include "server/transform/stream_plan.h"

namespace headrace::server::config {

using described::absolute;
using described::parse_duration;
using described::parse_size;

/// Which users the status page shows images of the datasets to.
enum class ImagesFor : std::uint8_t {
  kAdmitted,   ///< users of this machine who may attach: the server's own, root, and ServerConfig::allow's
               ///< uids
  kEverybody,  ///< everyone who can reach the port
  kNobody
};

struct MetricsConfig {
  std::string address = "127.0.0.1";
  std::uint16_t port = 9464;  ///< 0: any free port
  ImagesFor images = ImagesFor::kAdmitted;

  static described::Description<MetricsConfig> description();
};

/// Whether to assign workers and memory to nodes if the machine has several NUMA nodes: server/placement.
enum class Numa : std::uint8_t { kAuto, kOff };
enum class Seccomp : std::uint8_t { kAuto, kOff };

struct ServerConfig {
  std::filesystem::path directory;  ///< for the sockets; absolute. See default_directory()
  AllowedUsers allow;               ///< users that may attach, besides the server's user and root
  unsigned threads = 0;             ///< never 0 after load(): `auto` is default_threads()
  Numa numa = Numa::kAuto;
  Seccomp seccomp = Seccomp::kAuto;
  std::optional<MetricsConfig> metrics = MetricsConfig{};  ///< none: `metrics: off`
  std::chrono::milliseconds evict_after{30'000};
  std::chrono::milliseconds group_grace{60'000};
  std::chrono::milliseconds drain_timeout{3'000};
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;

  static described::Description<ServerConfig> description();
};

enum class Delivery : std::uint8_t { kBroadcast, kShard };
enum class OnError : std::uint8_t { kReplace, kFail };
enum class Access : std::uint8_t { kReadWrite, kReadOnly };
enum class OnLag : std::uint8_t { kDetach, kWait };

struct RingConfig {
  std::uint32_t prefetch = 4;    ///< batches
  std::uint32_t max_leases = 3;  ///< per client
  std::uint32_t max_clients = 4;
  Access data_access = Access::kReadOnly;
  bool checksums = false;

  static described::Description<RingConfig> description();
};

struct SharingConfig {
  std::uint32_t max_lag = 4;  ///< batches; <= prefetch, which is the default
  OnLag on_lag = OnLag::kDetach;
  std::uint32_t wait_for = 1;  ///< clients that must have asked before the first batch
  std::chrono::milliseconds wait_timeout{60'000};
  std::chrono::milliseconds patience{
      120'000};  ///< of a client ahead, for one that is too far behind to share rows
  /// Bytes of rows that are kept for clients and streams that need them later; 0: none; unset: a part of the
  /// free memory.
  std::optional<std::uint64_t> window;

  static described::Description<SharingConfig> description();
};

/// Where a stream is in the text, as messages begin ("train.yaml:12:3"); empty: it does not come from a text.
struct StreamPlaces {
  std::string stream, batch_size, wait_for;
  std::vector<std::string> transforms;
};

struct StreamConfig {
  std::string source;
  std::string part;                      ///< empty: the whole source (which then has no split)
  bool shuffle = true;                   ///< each epoch has another order
  std::optional<SamplerConfig> sampler;  ///< none: each sample once, in the order that `shuffle` chooses
  std::uint64_t seed = 0;
  std::uint32_t batch_size = 64;
  LastBatch last = LastBatch::kShort;
  Delivery delivery = Delivery::kBroadcast;
  transform::StreamPlan plan;  ///< unused for a synthetic source
  bool resident = false;       ///< `residence: gpu`: each loader with a device uploads the dataset once
  OnError on_error = OnError::kReplace;
  double max_bad = 0.1;  ///< fraction of the part's distinct samples found bad at which the stream fails
  RingConfig ring;
  SharingConfig sharing;
  StreamPlaces places;

  static described::Description<StreamConfig> description();
};

/// Most streams of a server: the limit of exec::Engine.
inline constexpr std::size_t kMaxStreams = 64;

struct Config {
  std::filesystem::path file;  ///< the file that was read; empty for parse() without a file
  ServerConfig server;
  std::map<std::string, SourceConfig> sources;
  std::map<std::string, StreamConfig> streams;
};

/// One thing that is wrong. Line and column count from 1; 0: the value comes from a variable or flag, which
/// `file` names.
struct Problem {
  std::string file;
  int line = 0, column = 0;
  std::string path;        ///< dotted: "streams.train.batch_size"; empty for syntax errors
  std::string message;     ///< includes the wrong value
  std::string suggestion;  ///< the nearest valid name, or empty

  /// "train.yaml:12:17: streams.train.last: \"shrot\" is none of short, pad, drop; did you mean \"short\"?"
  [[nodiscard]] std::string to_string() const;
};

/// One value from outside the file, typed by YAML's scalar rules.
struct Override {
  std::string path;       ///< dotted
  std::string value;      ///< as written
  std::string origin;     ///< its name in messages: "HEADRACE_SERVER__THREADS", "--set server.threads=x"
  bool fallback = false;  ///< used only where nothing before it gives a value: --default
};

/// "NAME=value" strings as in `environ`.
using Environment = std::vector<std::string>;
Environment process_environment();

/// Parses the value of `--set streams.train.batch_size=32`, or of another option; kInvalidArgument if there
/// is no "=".
Result<Override> parse_flag(std::string_view flag, std::string_view option = "--set");

/// Either a complete configuration or every problem (at least one).
struct Outcome {
  std::optional<Config> config;
  std::vector<Problem> problems;
};

/// Later overrides win; flags win over the environment, which wins over the file. Relative paths in the text
/// are relative to `name`'s folder. Opens no dataset.
Outcome examine(std::string_view text, const std::string& name, std::span<const Override> flags = {},
                const Environment& environment = {});

/// Like examine(); the error kConfigInvalid contains all problems, one per line.
Result<Config> parse(std::string_view text, const std::string& name, std::span<const Override> flags = {},
                     const Environment& environment = {});
/// Reads and parses the file. kConfigInvalid also if it cannot be read.
Result<Config> load(const std::filesystem::path& path, std::span<const Override> flags = {},
                    const Environment& environment = process_environment());

/// The part of a stream's plan that enters its fingerprint: transforms, output, seed, shuffle, sampler, part,
/// split. Not batch size, threads or ring. Equal plans give equal JSON however they are written (defaults are
/// filled in, keys are sorted); the content of files is not included.
nlohmann::json canonical(const StreamConfig& stream);

/// clientlib/base/default_directory.h with the environment's XDG_RUNTIME_DIR.
std::filesystem::path default_directory(const Environment& environment);

/// The JSON Schema of configurations, equal to configs/headrace.schema.json.
std::string schema_text();

std::string_view name_of(Delivery delivery);
std::string_view name_of(log::Level level);
std::string_view name_of(OnError policy);
std::string_view name_of(OnLag policy);
std::string_view name_of(Access access);

}  // namespace headrace::server::config
