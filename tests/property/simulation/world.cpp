#include "tests/property/simulation/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/publish/position.h"

namespace headrace::testing {
namespace {

constexpr std::uint32_t kJobsPerStream = 3, kRanksPerJob = 3;
constexpr int kMostDepth = 2;

StreamShape choose_stream(Chance& chance, std::size_t number, std::uint64_t samples) {
  StreamShape shape;
  shape.name = fmt::format("s{}", number);
  shape.delivery = chance.one_in(3) ? Delivery::kShard : Delivery::kBroadcast;
  shape.batch = chance.between(1, 8);
  shape.last = chance.one_in(5) ? LastBatch::kPad : LastBatch::kShort;
  if (chance.one_in(5) && samples >= std::uint64_t{shape.batch} * kRanksPerJob) shape.last = LastBatch::kDrop;
  const std::uint32_t prefetch = chance.between(1, 5);
  shape.ledger = {.lanes = kJobsPerStream * kRanksPerJob + 3,
                  .max_leases = chance.between(1, 4),
                  .prefetch = prefetch,
                  .broadcast = shape.delivery == Delivery::kBroadcast,
                  .max_lag = chance.between(1, prefetch),
                  .detach = !chance.one_in(3)};
  shape.wait_for = chance.one_in(4) ? 2 : 1;
  return shape;
}

}  // namespace

Shape choose_shape(Chance& chance) {
  Shape shape;
  shape.samples = chance.between(10, 60);
  shape.width = chance.one_in(24) ? 40'000 : chance.between(1, 9);  // large rows: batches of several slices
  shape.bad_every = chance.one_in(3) ? chance.between(5, 12) : 0;
  const std::uint32_t streams = chance.between(1, 3);
  for (std::uint32_t i = 0; i < streams; ++i)
    shape.streams.push_back(choose_stream(chance, i, shape.samples));
  shape.window_rows = chance.one_in(3) ? 0 : chance.between(1, 100);
  shape.patience = std::chrono::seconds(chance.one_in(2) ? 0 : chance.between(1, 30));
  shape.wait_timeout = std::chrono::milliseconds(chance.between(50, 500));
  shape.workers = chance.between(1, 4);
  shape.orders = chance.one_in(3) ? chance.between(1, 3) : 0;
  shape.fault_every = chance.between(6, 60);
  shape.sockets = chance.one_in(4);
  return shape;
}

std::string to_string(const Shape& shape) {
  std::string text = fmt::format(
      "{} samples of {} bytes, {} workers, window of {} rows, patience {} s, wait_timeout {} ms, {} "
      "orders{}{}",
      shape.samples, shape.width, shape.workers, shape.window_rows, shape.patience.count() / 1'000'000'000,
      shape.wait_timeout.count() / 1'000'000, shape.orders, shape.bad_every != 0 ? ", bad samples" : "",
      shape.sockets ? ", sockets" : "");
  for (const StreamShape& stream : shape.streams)
    text += fmt::format(
        "\n  {}: {}, batch {}, last {}, max_leases {}, prefetch {}, max_lag {}, on_lag {}, wait_for {}",
        stream.name, stream.ledger.broadcast ? "broadcast" : "shard", stream.batch,
        static_cast<int>(stream.last), stream.ledger.max_leases, stream.ledger.prefetch,
        stream.ledger.max_lag, stream.ledger.detach ? "detach" : "wait", stream.wait_for);
  return text;
}

World::World(Record& record)
    : record_(record),
      chance_(record.seed()),
      shape_(choose_shape(chance_)),
      rows_(shape_.samples, shape_.width, shape_.bad_every),
      site_{record, chance_, rows_, shape_} {
  restart_server();
  for (std::size_t stream = 0; stream < shape_.streams.size(); ++stream) {
    const std::uint32_t ranks = shape_.streams[stream].delivery == Delivery::kShard ? kRanksPerJob : 1;
    for (std::uint32_t i = chance_.between(1, kJobsPerStream); i > 0; --i)
      jobs_.push_back(std::make_unique<Job>(site_, stream, fmt::format("job{}", jobs_.size()), ranks));
  }
  rows_.source().meanwhile = [this] { disturb(); };
}

void World::run(std::uint64_t steps) {
  for (std::uint64_t i = 0; i < steps && !record_.failed(); ++i) step();
  if (!record_.failed()) finish();
}

void World::step() {
  ++record_.tally.steps;
  site_.now_ns += chance_.pick(20'000'000);
  if (chance_.one_in(200)) site_.now_ns += chance_.pick(3'000'000'000);
  if (!healthy() && chance_.one_in(60)) {
    if (site_.server->draining()) record_.fault(Fault::kDrained);
    restart_server();
  } else if (chance_.one_in(60)) {
    settle();
  } else if (chance_.one_in(shape_.fault_every)) {
    fault();
  } else {
    event();
  }
  check_all();
}

void World::event() {
  const std::uint64_t what = chance_.pick(100);
  if (what < 35) {
    for (std::uint64_t i = chance_.pick(6); i > 0; --i) site_.server->work(chance_, site_.now_ns);
  } else if (what < 37) {
    site_.server->pump(site_.now_ns);
  } else if (what < 41) {
    look_after_clients();
  } else if (what < 45) {
    site_.server->orders().step(chance_);
  } else {
    Job& job = *jobs_[chance_.pick(jobs_.size())];
    for (std::uint64_t i = chance_.pick(6); i > 0; --i) job.step();
  }
}

void World::disturb() {
  if (depth_ >= kMostDepth || record_.failed() || !chance_.one_in(10)) return;
  ++depth_;
  ++record_.tally.interrupted;
  for (std::uint64_t i = 1 + chance_.pick(3); i > 0; --i) {
    if (chance_.one_in(12)) {
      jobs_[chance_.pick(jobs_.size())]->suffer();
    } else {
      event();
    }
    check_all();
  }
  --depth_;
}

void World::fault() {
  const std::uint64_t what = chance_.pick(100);
  if (what < 4) {
    record_.fault(Fault::kServerKilled);
    restart_server();
  } else if (what < 6) {
    if (healthy()) site_.server->drain();
  } else if (what < 8) {
    if (!rows_.source().fails) record_.fault(Fault::kSourceFailed);
    rows_.source().fails = true;
  } else {
    jobs_[chance_.pick(jobs_.size())]->suffer();
  }
}

void World::restart_server() {
  site_.server.reset();
  rows_.source().fails = false;
  site_.server = std::make_unique<SimulatedServer>(shape_, rows_, record_, ++servers_);
  record_.note(80, servers_);
}

void World::look_after_clients() {
  each_rank([](Rank& rank) { rank.beat(); });
  site_.server->pump(site_.now_ns);
  site_.server->look_after_clients(site_.now_ns);
  each_rank([this](const Rank& rank) {
    record_.check(!rank.must_be_dropped() || !rank.connected(), "a client with invalid acks was not dropped");
  });
}

bool World::healthy() const {
  if (site_.server->draining() || rows_.source().fails) return false;
  for (std::size_t i = 0; i < site_.server->engine().stream_count(); ++i)
    if (site_.server->engine().stream(i).failed()) return false;
  return true;
}

void World::settle() {
  if (!healthy()) return;
  ++record_.tally.settled;
  ++depth_, ++depth_;                // undisturbed
  std::vector<const Rank*> running;  // the clock will let others continue
  each_rank([&](const Rank& rank) {
    if (rank.usable()) running.push_back(&rank);
  });
  settle_once();
  // Those that wait for others to begin have waited for long enough.
  site_.now_ns += static_cast<std::uint64_t>(shape_.wait_timeout.count()) + 1;
  settle_once();
  for (const Rank* rank : running) check_hunger(*rank);
  --depth_, --depth_;
}

void World::settle_once() {
  for (int round = 0; round < 200; ++round) {
    if (!record_.check(site_.server->work_until_rest(chance_, site_.now_ns), "the workers never rest"))
      return;
    bool taken = false;
    each_rank([&](Rank& rank) {
      if (!rank.usable() || rank.begin() != Rank::Begin::kPosition) return;
      rank.check_wakes();
      for (std::size_t before = rank.held(); rank.hungry(); before = rank.held()) {
        rank.poll();
        if (rank.held() == before) break;
        taken = true;
      }
    });
    if (record_.failed()) return;
    site_.server->pump(site_.now_ns);
    if (!taken) return;
  }
  record_.broken("clients take batches without end, and release none");
}

void World::check_hunger(const Rank& rank) {
  if (rank.hungry() && !has_to_wait(rank))
    record_.broken(fmt::format("{} starves at {} with {} leases: {}", rank.identity().client,
                               to_string(rank.next()), rank.held_now(),
                               site_.server->describe(rank.identity().stream)));
}

bool World::has_to_wait(const Rank& rank) const {
  const StreamShape& shape = shape_.streams[rank.identity().stream];
  if (shape.delivery != Delivery::kBroadcast || shape.ledger.detach) return false;
  // on_lag: wait: only for a client that is behind.
  return site_.server->engine().inspect(rank.identity().stream, [&](const Stream& stream) {
    const auto& ledger = stream.lanes().ledger();
    const EpochPlan& plan = *rank.identity().plan;
    for (std::uint32_t lane = 0; lane < shape.ledger.lanes; ++lane)
      if (ledger.is_open(lane) && !ledger.is_fenced(lane) &&
          server::publish::lag(plan, ledger.next(lane), server::publish::position_of(plan, rank.next()),
                               shape.ledger.max_lag) == shape.ledger.max_lag)
        return true;
    return false;
  });
}

void World::check_all() {
  site_.server->check_ledgers();
  each_rank([](Rank& rank) { rank.check_slots(); });
  for (const auto& connection : site_.server->connections())
    for (const auto& [reader, grant] : connection->ghosts)
      record_.check(
          reader->slot(grant.slot).word.load() == ring::slot_word(grant.generation, ring::SlotState::kReady),
          "a slot of a killed client was freed before its end was noticed");
}

void World::finish() {
  if (!healthy()) restart_server();
  each_rank([](Rank& rank) {
    if (rank.hostile()) {
      rank.kill();
    } else {
      rank.leave();
    }
  });
  site_.now_ns += 6'000'000'000;
  site_.server->orders().lose_all();
  ++depth_, ++depth_;
  look_after_clients();
  record_.check(site_.server->work_until_rest(chance_, site_.now_ns),
                "the workers never rest without clients");
  look_after_clients();
  site_.server->check_nothing_is_left();
  site_.server.reset();
}

}  // namespace headrace::testing
