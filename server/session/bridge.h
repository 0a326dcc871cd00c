// Lets one process have rows of this server's streams made elsewhere, through the socket
// <directory>/bridge.sock. Rows are a pure function of their position, so that process can cost only time. If
// it ends, workers make the rows that it was to make. If its rows are wrong, they are refused.
//
// Protocol: SOCK_SEQPACKET, one JSON object per packet. One bridge at a time, of this user or root.
//   bridge: {"bridge": 1, "most": n}        orders that may be open at once
//   server: {"bridge": 1, "streams": n}, then for each stream
//           {"stream": i, "name", "fingerprint", "obstacle"}   why no orders come for it; empty: they do
//   bridge: {"most": n}                     from now on
//   server: {"order": id, "stream": i, "epoch", "first", "rows", "ready"}   rows at these positions; `ready`:
//           finished batches that wait for the client that wants this one
//   bridge: {"made": id, "node", "received", "sent", "fields": [address, ...], "samples": address,
//           "replaced": address}            in its memory, unchanged until the release or its shutdown(2):
//           the rows of each field, uint64 indices of their samples, a byte for each row, not 0 if its sample
//           is a replacement (the server makes that row); `received`, `sent`: bytes of rows and of samples
//           that the network carried
//   bridge: {"failed": id, "node", "why"}   nobody makes it
//   server: {"release": id}                 once for each order, also if it is not made yet
//   server: {"refused": node, "why"}        its rows were wrong, and are not accepted. A bridge that has
//           started again is told once more if the node makes an order
// After an "error" the server closes the connection.
//
// One row of each batch is made here as well and compared before workers copy any row of the batch.
//
// Thread safety: any thread may call the public members. The bridge's own thread waits only in poll().
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"
#include "server/exec/engine.h"
#include "server/session/bridge_orders.h"
#include "server/session/refusals.h"

namespace headrace::server::session {

class Bridge {
 public:
  /// Binds the socket and starts the thread that waits for a bridge. `engine` must outlive this object.
  /// kEnvironment: no socket or no descriptor.
  static Result<std::unique_ptr<Bridge>> start(const std::filesystem::path& directory, exec::Engine& engine,
                                               std::shared_ptr<BridgeOrders> orders);
  ~Bridge();  ///< disconnects and joins, without delay
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

 private:
  Bridge(exec::Engine& engine, std::shared_ptr<BridgeOrders> orders)
      : engine_(engine), orders_(std::move(orders)) {}
  void run();
  /// Serves one connection to its end.
  void serve(int socket);
  Result<void> handshake(int socket, std::uint32_t& most);
  Result<void> send_streams(int socket) const;
  /// Until the bridge disconnects or the server stops.
  Result<void> exchange(int socket);
  void refuse_another();
  /// Sends what is in the outbox. False: the socket is full.
  Result<bool> send_messages(int socket);
  Result<void> handle(const std::string& packet);
  Result<void> handle_made(const nlohmann::json& body);
  Result<void> handle_failed(const nlohmann::json& body);
  /// Nothing if the row that is checked is right; otherwise what is wrong with it. An error: the rows cannot
  /// be read, or the row cannot be made here.
  Result<std::string> check(const BridgeOrders::Order& order, std::uint32_t row,
                            const exec::RemoteRows& rows);
  /// Once for each node of a connection.
  void tell_refused(const std::string& node, const std::string& why);
  void take_late();
  void wake_workers(std::size_t stream);
  /// True: `stop_` was rung within the time.
  [[nodiscard]] bool stopped(int milliseconds) const;

  exec::Engine& engine_;
  const std::shared_ptr<BridgeOrders> orders_;
  std::vector<std::unique_ptr<exec::RemoteOrders>> by_stream_;
  std::filesystem::path path_;
  ring::UniqueFd listener_, stop_;
  std::set<std::string> told_;                         ///< the refused nodes that the connected bridge knows
  std::mt19937 random_{std::random_device{}()};        ///< a node must not know which row is checked
  std::shared_ptr<const exec::ProcessMemory> memory_;  ///< of the connected bridge
  exec::RowScratch scratch_;
  Refusals refused_;
  std::thread thread_;
};

}  // namespace headrace::server::session
