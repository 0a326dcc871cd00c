// What happened in a simulation: its random choices, its events as one number, its faults, and the first
// thing that was wrong.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace headrace::testing {

/// All choices of a simulation come from here, so a seed decides every step.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed) {}
  std::uint64_t pick(std::uint64_t bound) { return random_() % bound; }  ///< bound >= 1
  std::uint32_t between(std::uint32_t least, std::uint32_t most) {
    return least + static_cast<std::uint32_t>(pick(most - least + 1));
  }
  bool one_in(std::uint64_t n) { return pick(n) == 0; }

 private:
  std::mt19937_64 random_;
};

enum class Fault : std::uint8_t {
  kKilledHolding,    ///< a client, with leases
  kKilledAfterCopy,  ///< a client, with a lease on a batch that it has used
  kKilledIdle,       ///< a client, attached, without leases
  kKilledOpening,    ///< a client, between open and attach
  kStopped,          ///< a client
  kFenced,           ///< one that was stopped past the eviction time
  kGarbage,          ///< in a client's lease segment
  kServerKilled,     ///< clients go on reading the old ring, and attach again
  kDrained,          ///< the server exits after a drain
  kSourceFailed,     ///< an I/O error stops a stream
  kNoMemory,         ///< for a client's lease segment: attaching is refused
  kOrderLost,        ///< a remote batch that never comes
  kOrderLate,        ///< one that comes after its cancellation
  kOrderTwice,       ///< one that comes twice
  kOrderWrong,       ///< one with samples of other positions
  kOrderCut,         ///< one whose maker ends before its rows were read
  kCount
};
std::string_view name_of(Fault fault);

struct Tally {
  std::array<std::uint64_t, static_cast<std::size_t>(Fault::kCount)> faults{};
  std::uint64_t steps = 0, interrupted = 0;              ///< events; in the middle of a row
  std::uint64_t batches = 0, rows = 0, epochs = 0;       ///< delivered
  std::uint64_t replaced = 0, shared = 0, remote = 0;    ///< rows
  std::uint64_t restarts = 0, resized = 0, refused = 0;  ///< of jobs and ranks; calls of open()
  std::uint64_t seeks = 0, views = 0, settled = 0;       ///< views and hunger: checks

  [[nodiscard]] std::uint64_t all_faults() const;
  void add(const Tally& other);
};

class Record {
 public:
  explicit Record(std::uint64_t seed) : seed_(seed) {}
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  /// Adds an event to the digest.
  template <class... Words>
  void note(Words... words) {
    (add(static_cast<std::uint64_t>(words)), ...);
  }
  void fault(Fault fault) {
    ++tally.faults[static_cast<std::size_t>(fault)];
    note(1000 + static_cast<std::uint64_t>(fault));
  }
  /// Something is wrong: only the first one counts.
  void broken(const std::string& what);
  /// broken(), unless `holds`. False: it does not hold.
  bool check(bool holds, std::string_view what) {
    if (!holds) broken(std::string(what));
    return holds;
  }
  [[nodiscard]] bool failed() const { return !failure_.empty(); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  Tally tally;

 private:
  void add(std::uint64_t word) { digest_ = (digest_ ^ word) * 0x100000001B3ULL; }

  const std::uint64_t seed_;
  std::uint64_t digest_ = 0xCBF29CE484222325ULL;
  std::string failure_;
};

/// Prints the seed and the step of `record` if the process aborts or crashes while this exists: a broken
/// contract in the server ends it.
class NamesTheSeed {
 public:
  explicit NamesTheSeed(const Record& record);
  ~NamesTheSeed();
  NamesTheSeed(const NamesTheSeed&) = delete;
  NamesTheSeed& operator=(const NamesTheSeed&) = delete;
};

}  // namespace headrace::testing
