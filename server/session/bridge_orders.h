// The orders of a server's streams to its bridge: which are open, when one is late, and what came of them.
// It sends nothing itself: the bridge's thread (bridge.h) takes messages from the outbox.
//
// Thread safety: any thread may call any member.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/base/unique_fd.h"
#include "server/exec/remote_batch.h"
#include "server/sampler/order.h"

namespace headrace::server::session {

/// How long orders take, and after which time one is late: computed like TCP's retransmission timeout (RFC
/// 6298).
class OrderTimes {
 public:
  void answered(std::uint64_t took_ns);
  void late() { backoff_ = backoff_ < 6 ? backoff_ + 1 : backoff_; }
  [[nodiscard]] std::uint64_t late_after_ns() const;

 private:
  std::uint64_t mean_ns_ = 0, deviation_ns_ = 0;  ///< 0: no answer yet
  unsigned backoff_ = 0;                          ///< late orders since the last answer, at most 6
};

class BridgeOrders : public std::enable_shared_from_this<BridgeOrders> {
 public:
  static constexpr std::uint32_t kMostUnderWay = 4096;

  struct Order {
    std::size_t stream = 0;
    std::uint64_t epoch = 0;
    sampler::BatchRows rows;
    std::uint64_t since_ns = 0;
    bool late = false;
    std::string node;                        ///< that made it; empty: none has yet
    std::weak_ptr<exec::RemoteBatch> batch;  ///< null once no worker needs it
  };
  /// Bytes that the network carried.
  struct Traffic {
    std::uint64_t received = 0;  ///< rows
    std::uint64_t sent = 0;      ///< samples for them
  };
  /// The figures of one node.
  struct Node {
    std::uint64_t samples = 0;  ///< that were used
    Traffic traffic;
    std::string refused;  ///< why; empty: it is not
  };
  struct Figures {
    bool connected = false;
    std::uint64_t under_way = 0;   ///< orders
    std::uint64_t late = 0;        ///< orders whose rows workers began to make here
    std::uint64_t failed = 0;      ///< orders that nobody made
    std::uint64_t made_twice = 0;  ///< samples
    std::map<std::string, Node> nodes;
  };

  /// The interface through which the Filler of `stream` orders batches.
  [[nodiscard]] std::unique_ptr<exec::RemoteOrders> of_stream(std::size_t stream);

  // --- the bridge's thread
  void connected(std::uint32_t most);
  /// Open orders are made here, and later ones refused until connected(). The outbox is emptied.
  void disconnected();
  void limit(std::uint32_t most);
  void send(const nlohmann::json& message);
  /// The next message; nullopt: none. A message that could not be sent goes back to the front.
  [[nodiscard]] std::optional<std::string> take_message();
  void put_back(std::string message);
  [[nodiscard]] int wake() const { return wake_.get(); }  ///< readable while there may be messages
  /// An order that still waits for an answer.
  [[nodiscard]] std::optional<Order> open_order(std::uint64_t id) const;
  void answered(std::uint64_t id, const std::string& node, const Traffic& traffic, std::uint64_t now_ns);
  void failed(std::uint64_t id);  ///< workers make its rows
  /// False: it is refused already.
  bool refuse(const std::string& node, const std::string& why);
  /// Why it is refused; empty: it is not.
  [[nodiscard]] std::string refused(const std::string& node) const;
  /// Lets workers make what is late. Returns those orders' streams, one bit each.
  [[nodiscard]] std::uint64_t take_late(std::uint64_t now_ns);
  /// When take_late() should be called next; nullopt: no order is open.
  [[nodiscard]] std::optional<std::uint64_t> next_check_ns() const;
  /// Releases the orders of a stream that has failed, which workers do not complete.
  void drop(std::size_t stream);

  [[nodiscard]] Figures figures() const;

 private:
  class OfStream;
  std::shared_ptr<exec::RemoteBatch> order(std::size_t stream, std::uint64_t epoch,
                                           const sampler::BatchRows& rows, std::uint32_t ready);
  [[nodiscard]] bool has_room() const;
  void released(std::uint64_t id, std::uint32_t copied);
  void push(std::string message);       ///< [mutex]
  Node* node(const std::string& name);  ///< [mutex] null: there are too many

  const UniqueFd wake_{make_wake()};
  static int make_wake();
  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<std::uint64_t, Order> orders_;  ///< until they are released
  std::deque<std::string> outbox_;
  OrderTimes times_;
  Figures figures_;
  std::uint32_t most_ = 0;
  std::uint32_t window_ =
      0;  ///< orders that may be open now, within most_: late ones halve it, answers raise it
  std::uint64_t next_id_ = 1;
};

}  // namespace headrace::server::session
