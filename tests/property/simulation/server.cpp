#include "tests/property/simulation/server.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::testing {

using server::exec::RowWindow;
using server::exec::StartGate;
using server::exec::StreamSetup;

SimulatedServer::SimulatedServer(const Shape& shape, SimulatedRows& rows, Record& record,
                                 std::uint64_t number)
    : shape_(shape),
      rows_(rows),
      record_(record),
      number_(number),
      orders_(rows, record, shape.orders),
      workers_(shape.workers),
      woken_(shape.streams.size()) {
  const auto count = static_cast<std::uint32_t>(shape.streams.size());
  if (shape.window_rows > 0)
    window_ = std::make_shared<RowWindow>(shape.window_rows * (2 * rows.width() + 160), 2 * rows.width(),
                                          shape.samples, count, std::chrono::nanoseconds(0));
  const auto gate = window_ && count > 1 ? std::make_shared<StartGate>() : nullptr;
  std::vector<std::unique_ptr<Stream>> streams;
  for (const StreamShape& it : shape.streams) {
    auto maker = rows.make_maker();
    if (window_) maker->share(rows.shared_fields(), window_, static_cast<std::uint32_t>(streams.size()));
    StreamSetup setup;
    setup.info = {.name = it.name,
                  .delivery = it.delivery,
                  .samples = shape.samples,
                  .batch_size = it.batch,
                  .last = it.last,
                  .fields = maker->fields()};
    setup.maker = std::move(maker);
    setup.ledger = it.ledger;
    setup.wait_for = it.wait_for;
    setup.wait_timeout = shape.wait_timeout;
    setup.patience = shape.patience;
    setup.gate = gate;
    streams.push_back(Stream::create(std::move(setup)).value());
  }
  engine_ = std::make_unique<Engine>(std::move(streams), 1);  // not started: the simulation works
  door_ = shape.sockets ? make_socket_door(*engine_, record) : make_direct_door(*engine_, record);
  for (Worker& worker : workers_)
    worker.counters = std::make_unique<server::metrics::StreamCounters[]>(count);
  if (shape.orders > 0)
    engine_->with(0, [&](Stream& stream) {
      stream.order_from(&orders_);
      return 0;
    });
}

SimulatedServer::~SimulatedServer() {
  for (const Worker& worker : workers_)
    for (std::size_t i = 0; i < stream_count(); ++i) {
      record_.tally.shared += worker.counters[i].shared.get();
      record_.tally.remote += worker.counters[i].remote.get();
    }
  for (const auto& connection : connections_) connection->server_closed = true;
  orders_.lose_all();
  workers_.clear();
}

bool SimulatedServer::work(Chance& chance, std::uint64_t now_ns) {
  const std::uint64_t first = chance.pick(workers_.size());
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[(first + i) % workers_.size()];
    if (!worker.busy) return work(worker, chance, now_ns);
  }
  return false;
}

bool SimulatedServer::work(Worker& worker, Chance& chance, std::uint64_t now_ns) {
  if (worker.finished) {
    const auto job = std::exchange(worker.finished, nullptr);
    record_.note(50, worker.stream, job->key.cursor.epoch, job->key.cursor.batch, job->rows.first);
    engine_->with(worker.stream, [&](Stream& stream) {
      stream.complete(*job, worker.counters[worker.stream]);
      return 0;
    });
    return true;
  }
  pump(now_ns);
  // As Engine::pick(), but sometimes in any order.
  std::vector<std::pair<double, std::size_t>> order;
  const bool any = chance.one_in(4);
  for (std::size_t i = 0; i < stream_count(); ++i) {
    const double fullness = any ? 0 : engine_->stream(i).lanes().fullness();
    order.emplace_back(fullness + 1e-6 * static_cast<double>(chance.pick(1000)), i);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [fullness, index] : order) {
    const auto job = engine_->with(index, [&](Stream& stream) { return stream.next_job(now_ns); });
    collect_wakes();
    if (!job) continue;
    record_.note(51, index, job->key.cursor.epoch, job->key.cursor.batch, job->rows.first);
    worker.busy = true;
    const bool completed = job->work(worker.scratch, worker.counters[index], 0);  // one slice
    worker.busy = false;
    if (completed) {
      worker.finished = job;
      worker.stream = index;
    }
    return true;
  }
  return false;
}

bool SimulatedServer::work_until_rest(Chance& chance, std::uint64_t now_ns) {
  for (int step = 0; step < 5000; ++step) {
    bool found = false;
    for (Worker& worker : workers_) found |= work(worker, chance, now_ns);
    if (!found) return true;
  }
  return false;
}

void SimulatedServer::pump(std::uint64_t now_ns) {
  for (std::size_t i = 0; i < stream_count(); ++i)
    engine_->with(i, [&](Stream& stream) { return stream.pump(now_ns); });
  collect_wakes();
}

void SimulatedServer::collect_wakes() {
  for (std::size_t i = 0; i < stream_count(); ++i)
    woken_[i] |= engine_->with(i, [](Stream& stream) { return stream.lanes().take_wakes(); });
}

bool SimulatedServer::take_wake(const Connection& connection) {
  std::uint64_t& woken = woken_[connection.stream];
  const std::uint64_t bit = std::uint64_t{1} << connection.lane;
  const bool was = (woken & bit) != 0;
  woken &= ~bit;
  return was;
}

Result<std::pair<wire::AttachReply, std::shared_ptr<Connection>>> SimulatedServer::open(
    const wire::OpenRequest& request, std::size_t stream, std::uint64_t now_ns) {
  if (draining_) return fail(ErrorCode::kDraining, "as session::Control answers");
  auto connection = std::make_shared<Connection>();
  connection->client = request.client;
  connection->stream = stream;
  auto reply = door_->open(*connection, request, now_ns);
  forget_ended();
  record_.note(52, stream, reply ? reply->lane : 1000 + static_cast<std::uint64_t>(reply.error().code));
  if (!reply) return fail(reply.error());
  connection->lane = reply->lane;
  connection->expires_ns = now_ns + door_->token_life_ns();
  connections_.push_back(connection);
  return std::pair(std::move(*reply), std::move(connection));
}

Result<std::shared_ptr<ring::RingReader>> SimulatedServer::attach(Connection& connection, bool memory,
                                                                  std::uint64_t now_ns) {
  auto reader = door_->attach(connection, memory, now_ns);
  forget_ended();
  record_.note(53, connection.lane, reader.has_value());
  if (!reader) return reader;
  connection.attached = true;
  take_wake(connection);  // of a former client of the lane
  return reader;
}

void SimulatedServer::forget_ended() {
  door_->find_ended(connections_);
  for (const auto& connection : connections_) {
    if (!connection->server_closed) continue;
    record_.note(54, connection->stream, connection->lane);
    record_.check(connection->client_closed || connection->hostile || !connection->attached,
                  "an honest client is dropped");
    connection->ghosts.clear();
  }
  std::erase_if(connections_, [](const auto& connection) { return connection->server_closed; });
}

void SimulatedServer::look_after_clients(std::uint64_t now_ns) {
  door_->look_after(connections_, now_ns);
  forget_ended();
  for (std::size_t i = 0; i < stream_count(); ++i)
    engine_->with(i, [&](Stream& stream) {
      stream.beat(now_ns, now_ns);  // forgets no group
      return 0;
    });
  if (window_) window_->trim();
}

void SimulatedServer::drain() {
  draining_ = true;
  for (std::size_t i = 0; i < stream_count(); ++i)
    engine_->with(i, [](Stream& stream) {
      stream.drain();
      return 0;
    });
}

std::string SimulatedServer::describe(std::size_t index) const {
  return engine_->inspect(index, [](const Stream& stream) {
    const auto& lanes = stream.lanes();
    const auto& ledger = lanes.ledger();
    const auto counts = ledger.counts();
    std::string text =
        fmt::format("{} free, {} filling, {} ready, {} leased, {} clients awaited", counts.free,
                    counts.filling, counts.ready, counts.leased, lanes.awaited_clients());
    for (std::uint32_t lane = 0; lane < lanes.all().size(); ++lane)
      if (ledger.is_open(lane))
        text += fmt::format("\n  lane {}, {}: {}, {} leases, {} ahead{}{}{}", lane, lanes.all()[lane].client,
                            to_string(ledger.next(lane)), ledger.leases(lane), ledger.ahead(lane),
                            ledger.is_fenced(lane) ? ", fenced" : "",
                            ledger.is_detached(lane) ? ", detached" : "",
                            lanes.all()[lane].asked ? "" : ", has not asked");
    return text;
  });
}

void SimulatedServer::check_ledgers() {
  for (std::size_t i = 0; i < stream_count(); ++i)
    engine_->inspect(i, [](const Stream& stream) {
      stream.lanes().ledger().check();
      return 0;
    });
}

void SimulatedServer::check_nothing_is_left() {
  record_.check(connections_.empty(), "a session is left");
  for (std::size_t i = 0; i < stream_count(); ++i)
    engine_->with(i, [&](Stream& stream) {
      const auto& ledger = stream.lanes().ledger();
      const auto counts = ledger.counts();
      record_.check(counts.filling == 0 && counts.ready == 0 && counts.leased == 0,
                    fmt::format("stream {}: slots are left: {} filling, {} ready, {} leased", i,
                                counts.filling, counts.ready, counts.leased));
      // A client that was refused after make_room() leaves memory without slots in the ledger.
      record_.check(counts.free <= stream.ring().allocated() &&
                        counts.free >= server::publish::Ledger::slots_needed(ledger.options(), 1),
                    "the number of slots is wrong");
      for (std::uint32_t slot = 0; slot < stream.ring().slot_count(); ++slot)
        record_.check(stream.ring().state(slot) == ring::SlotState::kFree,
                      fmt::format("slot {} is not free", slot));
      record_.check(stream.lanes().used_count() == 0 && stream.lanes().open_count() == 0, "a lane is left");
      record_.check(!stream.filling(), "a job is left");
      return 0;
    });
  if (window_) {
    window_->trim();
    record_.check(window_->kept() == 0 && window_->used() == 0,
                  fmt::format("the window keeps {} rows and {} bytes", window_->kept(), window_->used()));
    record_.check(!window_->foremost(), "the window has a reader");
  }
  orders_.lose_all();
  record_.check(orders_.open() == 0, fmt::format("{} orders are not released", orders_.open()));
}

}  // namespace headrace::testing
