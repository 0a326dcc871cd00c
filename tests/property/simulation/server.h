// A server of a simulation: the engine's streams without its threads and sockets. The seed decides what its
// workers and its session do next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "clientlib/ring/ring_reader.h"
#include "server/exec/engine.h"
#include "tests/property/simulation/door.h"
#include "tests/property/simulation/orders.h"
#include "tests/property/simulation/record.h"
#include "tests/property/simulation/rows.h"

namespace headrace::testing {

using server::exec::Engine;
using server::exec::Stream;

struct StreamShape {
  std::string name;
  Delivery delivery = Delivery::kBroadcast;
  std::uint32_t batch = 4;
  LastBatch last = LastBatch::kShort;
  server::publish::Ledger::Options ledger;
  std::uint32_t wait_for = 1;
};

struct Shape {
  std::uint64_t samples = 40;
  std::int64_t width = 3;
  std::uint64_t bad_every = 0;
  std::vector<StreamShape> streams;
  std::uint64_t window_rows = 0;  ///< 0: there is no window
  std::chrono::nanoseconds patience{}, wait_timeout{};
  std::uint32_t workers = 2;
  std::uint32_t orders = 0;        ///< remote batches of the first stream under way at once
  std::uint32_t fault_every = 20;  ///< steps
  bool sockets = false;            ///< clients attach through session::Sessions and its socket
};

class SimulatedServer {
 public:
  /// `number`: of servers so far. All references must outlive it.
  SimulatedServer(const Shape& shape, SimulatedRows& rows, Record& record, std::uint64_t number);
  ~SimulatedServer();  ///< as after kill -9: clients keep their mappings
  SimulatedServer(const SimulatedServer&) = delete;
  SimulatedServer& operator=(const SimulatedServer&) = delete;

  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] SimulatedOrders& orders() { return orders_; }
  [[nodiscard]] const server::exec::RowWindow* window() const { return window_.get(); }
  [[nodiscard]] bool draining() const { return draining_; }

  // --- workers
  /// One step of a worker: it completes the batch that it has finished, or it makes one slice. False: there
  /// was nothing to do.
  bool work(Chance& chance, std::uint64_t now_ns);
  /// All workers, until none finds anything to do. False: they never rest.
  bool work_until_rest(Chance& chance, std::uint64_t now_ns);
  void pump(std::uint64_t now_ns);
  /// Whether the server owed this client a wake-up since the last call.
  bool take_wake(const Connection& connection);

  // --- the session
  Result<std::pair<wire::AttachReply, std::shared_ptr<Connection>>> open(const wire::OpenRequest& request,
                                                                         std::size_t stream,
                                                                         std::uint64_t now_ns);
  Result<std::shared_ptr<ring::RingReader>> attach(Connection& connection, bool memory, std::uint64_t now_ns);
  Result<wire::CursorSetReply> seek(const Connection& connection, const Cursor& cursor) {
    return door_->seek(connection, cursor);
  }
  /// Ends the sessions of clients that are gone, too late or hostile, and fences those that are stuck.
  void look_after_clients(std::uint64_t now_ns);
  void drain();
  [[nodiscard]] const std::vector<std::shared_ptr<Connection>>& connections() const { return connections_; }

  /// After all clients have left and the workers rest: whether anything is still held.
  void check_nothing_is_left();
  void check_ledgers();
  /// The stream's slots and lanes.
  [[nodiscard]] std::string describe(std::size_t stream) const;

 private:
  struct Worker {
    server::exec::RowScratch scratch;
    std::unique_ptr<server::metrics::StreamCounters[]> counters;  ///< one per stream
    std::shared_ptr<server::exec::FillJob> finished;              ///< not completed yet
    std::size_t stream = 0;                                       ///< of `finished`
    bool busy = false;                                            ///< in the middle of a slice
  };
  bool work(Worker& worker, Chance& chance, std::uint64_t now_ns);
  void collect_wakes();
  void forget_ended();  ///< connections
  [[nodiscard]] std::size_t stream_count() const { return engine_->stream_count(); }

  const Shape& shape_;
  SimulatedRows& rows_;
  Record& record_;
  const std::uint64_t number_;
  std::shared_ptr<server::exec::RowWindow> window_;
  SimulatedOrders orders_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Door> door_;
  std::vector<Worker> workers_;
  std::vector<std::uint64_t> woken_;  ///< per stream: lanes, one bit each
  std::vector<std::shared_ptr<Connection>> connections_;
  bool draining_ = false;
};

}  // namespace headrace::testing
