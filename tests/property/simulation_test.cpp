// Ledger, lanes, filler, window and ring in one process, without threads and with a virtual clock: a seed
// decides every step and every fault (simulation/world.h).
//
//   HEADRACE_SEED=N     only this seed, as in a failure's message
//   HEADRACE_FAULTS=N   about this many faults; with HEADRACE_SEED, from that seed on
//   HEADRACE_STRESS=1   a million
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "server/log/log.h"
#include "tests/property/simulation/world.h"

namespace headrace::testing {
namespace {

constexpr std::uint64_t kSteps = 1500;

std::optional<std::uint64_t> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::optional<std::uint64_t>(std::strtoull(text, nullptr, 10))
                                          : std::nullopt;
}

std::uint64_t wanted_faults() {
  if (const auto wanted = number_in("HEADRACE_FAULTS")) return *wanted;
  return number_in("HEADRACE_STRESS").value_or(0) != 0 ? 1'000'000 : 20'000;
}

std::ptrdiff_t open_descriptors() {
  using Iterator = std::filesystem::directory_iterator;
  return std::distance(Iterator("/proc/self/fd"), Iterator());
}

struct Outcome {
  std::uint64_t digest = 0;
  std::string failure;
  Tally tally;
};

Outcome simulate(std::uint64_t seed) {
  Record record(seed);
  const NamesTheSeed names(record);
  Outcome outcome;
  {
    World world(record);
    world.run(kSteps);
    if (record.failed()) outcome.failure = record.failure() + "\n" + to_string(world.shape());
  }
  outcome.digest = record.digest();
  outcome.tally = record.tally;
  return outcome;
}

void print(const Tally& tally, std::uint64_t seeds, double seconds) {
  std::printf("%llu seeds, %.1f s, %.0f faults per second\n", static_cast<unsigned long long>(seeds), seconds,
              static_cast<double>(tally.all_faults()) / seconds);
  const auto line = [](std::string_view what, std::uint64_t count) {
    std::printf("| %s | %llu |\n", std::string(what).c_str(), static_cast<unsigned long long>(count));
  };
  for (std::size_t i = 0; i < tally.faults.size(); ++i) line(name_of(static_cast<Fault>(i)), tally.faults[i]);
  line("faults", tally.all_faults());
  line("steps", tally.steps);
  line("events in the middle of a row", tally.interrupted);
  line("batches delivered", tally.batches);
  line("rows checked", tally.rows);
  line("of them replacements of bad samples", tally.replaced);
  line("rows taken from the window", tally.shared);
  line("rows taken from the bridge", tally.remote);
  line("epochs completed", tally.epochs);
  line("restarts of jobs and ranks", tally.restarts);
  line("of them at another world size", tally.resized);
  line("opens that were refused", tally.refused);
  line("seeks", tally.seeks);
  line("views checked again", tally.views);
  line("checks for starving clients", tally.settled);
}

class Simulation : public ::testing::Test {
 protected:
  void SetUp() override {
    server::log::set_sink(std::make_shared<spdlog::sinks::null_sink_mt>());
    server::log::set_level(server::log::Level::kOff);
  }
};

TEST_F(Simulation, RepeatsASeedExactly) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Outcome first = simulate(seed), second = simulate(seed);
    EXPECT_EQ(first.digest, second.digest) << "seed " << seed;
    EXPECT_NE(first.digest, simulate(seed + 100).digest);
  }
}

TEST_F(Simulation, LosesDoublesAndChangesNothingUnderFaults) {
  const auto begin = std::chrono::steady_clock::now();
  const auto first = number_in("HEADRACE_SEED");
  const bool only = first && !number_in("HEADRACE_FAULTS");
  const std::uint64_t wanted = wanted_faults();
  simulate(0);  // opens what stays open
  const auto descriptors = open_descriptors();
  Tally all;
  std::uint64_t seed = first.value_or(1), seeds = 0;
  for (; seeds == 0 || (!only && all.all_faults() < wanted); ++seed, ++seeds) {
    const Outcome outcome = simulate(seed);
    all.add(outcome.tally);
    if (only) std::printf("digest %016llx\n", static_cast<unsigned long long>(outcome.digest));
    ASSERT_TRUE(outcome.failure.empty()) << outcome.failure;
    ASSERT_EQ(open_descriptors(), descriptors) << "seed " << seed << ": descriptors are left";
  }
  print(all, seeds, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

}  // namespace
}  // namespace headrace::testing
