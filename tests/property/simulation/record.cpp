#include "tests/property/simulation/record.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <numeric>

namespace headrace::testing {
namespace {

const Record* running = nullptr;

extern "C" void name_the_seed(int signal) {
  if (running != nullptr)
    std::fprintf(stderr, "simulation: HEADRACE_SEED=%llu ended at step %llu with signal %d\n",
                 static_cast<unsigned long long>(running->seed()),
                 static_cast<unsigned long long>(running->tally.steps), signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

std::string_view name_of(Fault fault) {
  switch (fault) {
    case Fault::kKilledHolding:
      return "client killed holding leases";
    case Fault::kKilledAfterCopy:
      return "client killed between copy and release";
    case Fault::kKilledIdle:
      return "client killed without leases";
    case Fault::kKilledOpening:
      return "client killed between open and attach";
    case Fault::kStopped:
      return "client stopped";
    case Fault::kFenced:
      return "client stopped past eviction";
    case Fault::kGarbage:
      return "garbage in a lease segment";
    case Fault::kServerKilled:
      return "server killed and restarted";
    case Fault::kDrained:
      return "server drained and restarted";
    case Fault::kSourceFailed:
      return "I/O error that stops a stream";
    case Fault::kNoMemory:
      return "no memory for a lease segment";
    case Fault::kOrderLost:
      return "remote batch lost";
    case Fault::kOrderLate:
      return "remote batch arrived after its order was cancelled";
    case Fault::kOrderTwice:
      return "remote batch arrived twice";
    case Fault::kOrderWrong:
      return "remote batch had other samples";
    case Fault::kOrderCut:
      return "bridge ended before the server read its rows";
    case Fault::kCount:
      break;
  }
  return "?";
}

std::uint64_t Tally::all_faults() const {
  return std::accumulate(faults.begin(), faults.end(), std::uint64_t{0});
}

void Tally::add(const Tally& other) {
  for (std::size_t i = 0; i < faults.size(); ++i) faults[i] += other.faults[i];
  steps += other.steps;
  interrupted += other.interrupted;
  batches += other.batches;
  rows += other.rows;
  epochs += other.epochs;
  replaced += other.replaced;
  shared += other.shared;
  remote += other.remote;
  restarts += other.restarts;
  resized += other.resized;
  refused += other.refused;
  seeks += other.seeks;
  views += other.views;
  settled += other.settled;
}

void Record::broken(const std::string& what) {
  if (failed()) return;
  failure_ = fmt::format("HEADRACE_SEED={}, step {}: {}", seed_, tally.steps, what);
}

NamesTheSeed::NamesTheSeed(const Record& record) {
  running = &record;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, name_the_seed);
}

NamesTheSeed::~NamesTheSeed() {
  running = nullptr;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, SIG_DFL);
}

}  // namespace headrace::testing
