// Two jobs over one epoch each, on a virtual clock: workers decode, clients train, a window keeps rows. The
// rule for who waits is compared with never waiting and with always waiting, over random step times, skews
// and stalls.
#include "server/publish/fill_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "server/publish/ledger.h"

namespace headrace::server::publish {
namespace {

constexpr std::uint32_t kBatch = 8;  // rows
constexpr std::uint64_t kMs = 1'000'000;

struct Job {
  std::uint64_t start = 0, step = 0;  // ns; a step: of one batch
  std::uint64_t stall_at = 0, stall = 0;
  bool holds = false;  ///< a batch until it has the next one, as a Python loop does
};

struct Scenario {
  std::array<Job, 2> jobs;
  std::uint64_t batches = 0, decode = 0, window = 0;  // of an epoch; ns for a batch and worker; batches
};

struct Outcome {
  std::array<std::uint64_t, 2> duration{};
  std::uint64_t longest_gap = 0;  ///< between two batches of a job, without its own steps and stalls
  bool waited = false;
  std::uint64_t decoded = 0;  ///< batches
  [[nodiscard]] std::uint64_t total() const { return duration[0] + duration[1]; }
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, std::uint64_t patience, bool detach = true)
      : scenario_(scenario),
        plan_(scenario.batches * kBatch, kBatch, 1, LastBatch::kShort),
        ledger_({.lanes = 2, .max_leases = 3, .prefetch = 4, .max_lag = 4, .detach = detach}),
        order_(ledger_, {.epoch_rows = scenario.batches * kBatch, .patience_ns = patience}) {
    ledger_.provide(2);
  }

  Outcome run() {
    while (!clients_[0].ended || !clients_[1].ended) {
      while (advance_all()) continue;
      now_ = next_event();
    }
    return outcome_;
  }

 private:
  struct Client {
    bool open = false, ended = false, busy = false;
    std::uint64_t until = 0, idle_since = 0, received = 0;
    std::deque<std::uint32_t> granted;  // slots
    std::optional<std::uint32_t> held;
  };
  struct Worker {
    bool busy = false, keep = false;
    std::uint64_t until = 0, batch = 0;
    std::uint32_t slot = 0;
  };

  bool advance_all() {
    bool changed = false;
    for (std::uint32_t lane = 0; lane < 2; ++lane) changed |= advance_client(lane);
    changed |= end_fill();
    drop_passed();
    grant();
    return (!worker_.busy && start_fill()) || changed;
  }

  bool advance_client(std::uint32_t lane) {
    Client& client = clients_[lane];
    const Job& job = scenario_.jobs[lane];
    if (client.ended) return false;
    if (!client.open && now_ >= job.start) {
      ledger_.open(lane, &plan_, {});
      client.open = true;
      client.idle_since = now_;
      return true;
    }
    if (client.busy && now_ >= client.until) {
      if (job.holds)
        client.held = client.granted.front();
      else
        ledger_.ack(lane, client.granted.front());
      client.granted.pop_front();
      client.busy = false;
      client.idle_since = now_;
      if (++client.received == scenario_.batches) {
        ledger_.close(lane);
        order_.forget(lane);
        client = Client{};
        client.ended = true;
        outcome_.duration[lane] = now_ - job.start;
      }
      return true;
    }
    if (client.open && !client.busy && !client.granted.empty()) {
      outcome_.longest_gap = std::max(outcome_.longest_gap, now_ - client.idle_since);
      if (client.held) ledger_.ack(lane, *std::exchange(client.held, std::nullopt));
      client.busy = true;
      client.until = now_ + job.step + (client.received == job.stall_at ? job.stall : 0);
      return true;
    }
    return false;
  }

  void grant() {
    std::vector<Ledger::Order> orders;
    ledger_.take_grants(orders);
    for (const auto& order : orders) clients_[order.lane].granted.push_back(order.slot);
    settle();
    std::uint64_t starved = 0;
    for (std::uint32_t lane = 0; lane < 2; ++lane)
      if (const Client& it = clients_[lane]; it.open && !it.busy && it.granted.empty()) starved |= 1U << lane;
    if (clients_[0].open && clients_[1].open)
      order_.update(now_, {window_.size() * kBatch, (scenario_.window - window_.size()) * kBatch}, starved);
    else
      order_.pause();
    ledger_.favor(order_.awaited());
    outcome_.waited |= order_.waiting() != 0;
  }

  void settle() {
    std::vector<std::uint32_t> freed;
    ledger_.take_freed(freed);
  }

  bool start_fill() {
    std::uint64_t kept_lanes = 0;
    for (std::uint32_t lane = 0; lane < 2; ++lane)
      if (const auto missing = ledger_.is_open(lane) ? ledger_.first_missing(lane) : std::nullopt)
        if (window_.contains(missing->epoch * scenario_.batches + missing->batch)) kept_lanes |= 1U << lane;
    for (const std::uint32_t lane : order_.lanes(kept_lanes)) {
      const auto fill = ledger_.take_fill(lane);
      if (++fills_ % 64 == 0) ledger_.check();
      settle();
      if (!fill) continue;
      order_.count(lane, kBatch);
      const std::uint64_t batch = fill->key.cursor.epoch * scenario_.batches + fill->key.cursor.batch;
      const bool kept = window_.contains(batch);
      const std::uint32_t other = 1 - lane;
      const bool needed =
          (ledger_.served_by(*fill) >> other & 1) == 0 && ledger_.is_open(other) && next(other) <= batch;
      worker_ = {.busy = true,
                 .keep = needed && !kept,
                 .until = now_ + (kept ? scenario_.decode / 50 : scenario_.decode),
                 .batch = batch,
                 .slot = fill->slot};
      outcome_.decoded += kept ? 0 : 1;
      return true;
    }
    return false;
  }

  bool end_fill() {
    if (!worker_.busy || now_ < worker_.until) return false;
    ledger_.filled(worker_.slot);
    if (worker_.keep && scenario_.window > 0) {
      window_.insert(worker_.batch);
      if (window_.size() > scenario_.window) window_.erase(std::prev(window_.end()));  // needed last
    }
    worker_.busy = false;
    settle();
    return true;
  }

  [[nodiscard]] std::uint64_t next(std::uint32_t lane) const {
    return ledger_.next(lane).epoch * scenario_.batches + ledger_.next(lane).batch;
  }

  void drop_passed() {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (std::uint32_t lane = 0; lane < 2; ++lane)
      if (ledger_.is_open(lane)) least = std::min(least, next(lane));
    window_.erase(window_.begin(), window_.lower_bound(least));
  }

  [[nodiscard]] std::uint64_t next_event() {
    std::uint64_t then = now_ + 100 * kMs;  // the rule is applied again
    if (worker_.busy) then = std::min(then, worker_.until);
    for (std::uint32_t lane = 0; lane < 2; ++lane) {
      const Client& client = clients_[lane];
      if (client.busy) then = std::min(then, client.until);
      if (!client.open && !client.ended) then = std::min(then, scenario_.jobs[lane].start);
    }
    return std::max(then, now_ + 1);
  }

  const Scenario& scenario_;
  sampler::EpochPlan plan_;
  Ledger ledger_;
  FillOrder order_;
  Worker worker_;
  std::array<Client, 2> clients_;
  std::set<std::uint64_t> window_;
  std::uint64_t now_ = 1, fills_ = 0;
  Outcome outcome_;
};

class Scenarios {
 public:
  explicit Scenarios(std::uint64_t seed) : random_(seed) {}

  Scenario next() {
    Scenario out;
    out.batches = 1000 + random_() % 2000;
    out.decode = between(5, 20);
    const std::uint64_t epoch = out.batches * out.decode;  // if decoding is the bottleneck
    for (Job& job : out.jobs) {
      job.step = between(1, 30);
      if (random_() % 3 == 0) job.stall_at = random_() % out.batches, job.stall = fraction(epoch / 10);
      job.holds = job.step % 2 == 0;
    }
    out.jobs[1].start = fraction(epoch + epoch / 4);
    out.window = random_() % 2 == 0 ? 0 : random_() % (out.batches / 2);
    return out;
  }

 private:
  std::uint64_t between(std::uint64_t least, std::uint64_t most) {
    return kMs * least + random_() % (kMs * (most - least));
  }
  std::uint64_t fraction(std::uint64_t of) { return random_() % of; }

  std::mt19937_64 random_;
};

constexpr std::uint64_t kHour = 3'600'000 * kMs;

TEST(FillOrder, IsRarelyAboveTheBetterOfWaitingAndNot) {
  // HEADRACE_CSV: for a plot, see tests/bench/README.md.
  std::ofstream csv;
  if (const char* path = std::getenv("HEADRACE_CSV")) csv.open(path);
  csv << "detach,wait,rule\n";
  constexpr int kScenarios = 400;
  int over = 0;
  double worst = 0, all_detach = 0, all_rule = 0;
  Scenarios scenarios(1);
  for (int i = 0; i < kScenarios; ++i) {
    const Scenario scenario = scenarios.next();
    const Outcome detach = Simulation(scenario, 0).run(), wait = Simulation(scenario, 0, false).run();
    const Outcome rule = Simulation(scenario, kHour).run();
    csv << detach.total() << ',' << wait.total() << ',' << rule.total() << '\n';
    const double ratio =
        static_cast<double>(rule.total()) / static_cast<double>(std::min(detach.total(), wait.total()));
    over += ratio > 1.05 ? 1 : 0;
    worst = std::max(worst, ratio);
    all_detach += static_cast<double>(detach.total());
    all_rule += static_cast<double>(rule.total());
  }
  // Not everything can be foreseen: tests/bench/README.md has other seeds.
  EXPECT_LE(worst, 1.05);
  EXPECT_LT(all_rule, all_detach);
  std::printf("worst %.3f, %d above 1.05; all together %.3f of never waiting\n", worst, over,
              all_rule / all_detach);
}

TEST(FillOrder, NoGapExceedsThePatience) {
  Scenarios scenarios(2);
  int waited = 0;
  for (int i = 0; i < 400; ++i) {
    const Scenario scenario = scenarios.next();
    constexpr std::uint64_t kPatience = 5000 * kMs;
    const Outcome rule = Simulation(scenario, kPatience).run();
    waited += rule.waited ? 1 : 0;
    // Beside the patience: a few batches take their time, and the rule is applied ten times a second.
    EXPECT_LE(rule.longest_gap, kPatience + 100 * kMs + 20 * scenario.decode) << "scenario " << i;
  }
  EXPECT_GT(waited, 40) << "scenarios in which somebody waits";
}

TEST(FillOrder, NobodyStarvesWhereDecodingIsTheBottleneck) {
  Scenarios scenarios(3);
  for (int i = 0; i < 400; ++i) {
    const Scenario scenario = scenarios.next();
    // Also for a client that was overtaken, and so waits for batches that are ready behind a missing one.
    EXPECT_LE(Simulation(scenario, 0).run().longest_gap, 12 * scenario.decode) << "scenario " << i;
  }
}

// What one client received while it was alone must not look like the speed of the workers.
TEST(FillOrder, AClientYieldsSoonAfterAnotherOneJoins) {
  constexpr std::uint64_t kBatches = 50'000, kAlone = 20'000;
  const sampler::EpochPlan plan(kBatches * kBatch, kBatch, 1, LastBatch::kShort);
  Ledger ledger({.lanes = 2, .max_leases = 3, .prefetch = 4, .max_lag = 4});
  ledger.provide(2);
  ledger.open(0, &plan, {});
  FillOrder order(ledger, {.epoch_rows = kBatches * kBatch, .patience_ns = kHour});
  std::uint64_t ms = 0;
  const auto run = [&](std::uint64_t until, std::uint64_t decode) {
    std::optional<Ledger::Fill> making;
    for (; ms < until && order.waiting() == 0; ++ms) {
      if (making && ms % decode == 0) {
        ledger.filled(making->slot);
        making.reset();
      }
      std::vector<Ledger::Order> grants;
      ledger.take_grants(grants);
      for (const Ledger::Order& grant : grants) ledger.ack(grant.lane, grant.slot);
      std::vector<std::uint32_t> freed;
      ledger.take_freed(freed);
      if (ledger.is_open(1))
        order.update(ms * kMs, {}, 3);
      else
        order.pause();
      for (const std::uint32_t lane : order.lanes(0)) {
        if (making || !(making = ledger.take_fill(lane))) continue;
        order.count(lane, kBatch);
        break;
      }
    }
  };
  run(kAlone, 10);
  ledger.open(1, &plan, {});
  run(kAlone + 10'000, 10);
  EXPECT_EQ(order.waiting(), 1U);
  EXPECT_LE(ms, kAlone + 1500) << "ms";
}

TEST(FillOrder, AClientThatYieldsGoesOnUntilBothMeet) {
  constexpr std::uint64_t kBatches = 50'000, kApart = 3000, kDecode = 10, kStep = 2;  // ms
  const sampler::EpochPlan plan(kBatches * kBatch, kBatch, 1, LastBatch::kShort);
  Ledger ledger({.lanes = 2, .max_leases = 3, .prefetch = 4, .max_lag = 4});
  ledger.provide(2);
  ledger.open(0, &plan, {0, 0, kApart});
  ledger.open(1, &plan, {});
  FillOrder order(ledger, {.epoch_rows = kBatches * kBatch, .patience_ns = kHour});
  std::optional<Ledger::Fill> making;
  std::array<std::uint64_t, 2> trains_until{};
  bool yielded = false;
  for (std::uint64_t ms = 1; ms <= 25'000; ++ms) {
    if (making && ms % kDecode == 0) {
      ledger.filled(making->slot);
      making.reset();
    }
    std::vector<Ledger::Order> grants;
    ledger.take_grants(grants);
    for (const Ledger::Order& grant : grants) {
      ledger.ack(grant.lane, grant.slot);
      trains_until[grant.lane] = ms + kStep;
    }
    std::vector<std::uint32_t> freed;
    ledger.take_freed(freed);
    std::uint64_t starved = 0;
    for (std::uint32_t lane = 0; lane < 2; ++lane)
      // Ten times a second a client that waits checks for signals.
      if (trains_until[lane] <= ms && ms % 100 != 50) starved |= std::uint64_t{1} << lane;
    order.update(ms * kMs, {}, starved);
    ledger.favor(order.awaited());
    for (const std::uint32_t lane : order.lanes(0)) {
      if (making || !(making = ledger.take_fill(lane))) continue;
      order.count(lane, kBatch);
      break;
    }
    yielded = yielded || order.waiting() == 1;
    ASSERT_TRUE(!yielded || order.waiting() == 1) << "after " << ms << " ms";
  }
  EXPECT_TRUE(yielded);
}

}  // namespace
}  // namespace headrace::server::publish
