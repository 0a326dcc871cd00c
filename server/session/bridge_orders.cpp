#include "server/session/bridge_orders.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "clientlib/ring/futex.h"

namespace headrace::server::session {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMillisecond = 1'000'000;
/// Before the first answer: makers may have to start and to open the dataset.
constexpr std::uint64_t kFirstLate = 2000 * kMillisecond;
constexpr std::uint64_t kLeastLate = 100 * kMillisecond, kMostLate = 60'000 * kMillisecond;
/// Between two looks for streams that have failed, while orders are open.
constexpr std::uint64_t kLongestCheck = 500 * kMillisecond;
/// Nodes with figures of their own: a bridge's names must not fill the memory.
constexpr std::size_t kMostNodes = 1024;

}  // namespace

void OrderTimes::answered(std::uint64_t took_ns) {
  backoff_ = 0;
  if (mean_ns_ == 0) {
    mean_ns_ = std::max<std::uint64_t>(took_ns, 1);
    deviation_ns_ = took_ns / 2;
    return;
  }
  const std::uint64_t off = took_ns > mean_ns_ ? took_ns - mean_ns_ : mean_ns_ - took_ns;
  deviation_ns_ = (3 * deviation_ns_ + off) / 4;
  mean_ns_ = std::max<std::uint64_t>((7 * mean_ns_ + took_ns) / 8, 1);
}

std::uint64_t OrderTimes::late_after_ns() const {
  const std::uint64_t usual = mean_ns_ == 0 ? kFirstLate : std::max(kLeastLate, mean_ns_ + 4 * deviation_ns_);
  return std::min(usual << backoff_, kMostLate);
}

class BridgeOrders::OfStream : public exec::RemoteOrders {
 public:
  OfStream(BridgeOrders& all, std::size_t stream) : all_(all), stream_(stream) {}
  [[nodiscard]] bool has_room() const override { return all_.has_room(); }
  std::shared_ptr<exec::RemoteBatch> order(std::uint64_t epoch, const sampler::BatchRows& rows,
                                           std::uint32_t ready) override {
    return all_.order(stream_, epoch, rows, ready);
  }

 private:
  BridgeOrders& all_;
  const std::size_t stream_;
};

int BridgeOrders::make_wake() {
  return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

std::unique_ptr<exec::RemoteOrders> BridgeOrders::of_stream(std::size_t stream) {
  return std::make_unique<OfStream>(*this, stream);
}

std::shared_ptr<exec::RemoteBatch> BridgeOrders::order(std::size_t stream, std::uint64_t epoch,
                                                       const sampler::BatchRows& rows, std::uint32_t ready) {
  std::uint64_t id = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (orders_.size() >= std::min(most_, window_)) return nullptr;
    id = next_id_++;
  }
  // Batches may outlive the connection, but not these orders. Before the lock, which the batch's end takes.
  auto batch = std::make_shared<exec::RemoteBatch>(
      [self = shared_from_this(), id](std::uint32_t copied) { self->released(id, copied); });
  const json message{{"order", id},         {"stream", stream},  {"epoch", epoch},
                     {"first", rows.first}, {"rows", rows.rows}, {"ready", ready}};
  const std::scoped_lock lock(mutex_);
  if (!figures_.connected) return nullptr;
  orders_[id] = {.stream = stream,
                 .epoch = epoch,
                 .rows = rows,
                 .since_ns = ring::monotonic_ns(),
                 .node = {},
                 .batch = batch};
  push(message.dump());
  return batch;
}

bool BridgeOrders::has_room() const {
  const std::scoped_lock lock(mutex_);
  return orders_.size() < std::min(most_, window_);
}

void BridgeOrders::released(std::uint64_t id, std::uint32_t copied) {
  const std::scoped_lock lock(mutex_);
  const auto found = orders_.find(id);
  if (found == orders_.end()) return;  // it was taken back, or its connection is gone
  const Order& order = found->second;
  if (!order.node.empty()) {
    if (Node* const maker = node(order.node)) maker->samples += copied;
    figures_.made_twice += order.rows.rows - std::min(order.rows.rows, copied);
  }
  orders_.erase(found);
  push(json{{"release", id}}.dump());
}

void BridgeOrders::push(std::string message) {
  if (!figures_.connected) return;
  outbox_.push_back(std::move(message));
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // fails only if it is readable already
}

BridgeOrders::Node* BridgeOrders::node(const std::string& name) {
  if (figures_.nodes.size() >= kMostNodes && !figures_.nodes.contains(name)) return nullptr;
  return &figures_.nodes[name];
}

void BridgeOrders::connected(std::uint32_t most) {
  const std::scoped_lock lock(mutex_);
  figures_.connected = true;
  most_ = window_ = most;
  times_ = {};
}

void BridgeOrders::disconnected() {
  std::map<std::uint64_t, Order> open;
  {
    const std::scoped_lock lock(mutex_);
    figures_.connected = false;
    most_ = 0;
    outbox_.clear();
    open.swap(orders_);
  }
  for (const auto& [id, order] : open)
    if (const auto batch = order.batch.lock()) batch->make_here();
}

void BridgeOrders::limit(std::uint32_t most) {
  const std::scoped_lock lock(mutex_);
  window_ = std::max(window_, most > most_ ? window_ + (most - most_) : 1);
  most_ = most;
}

void BridgeOrders::send(const json& message) {
  const std::scoped_lock lock(mutex_);
  push(message.dump(-1, ' ', false, json::error_handler_t::replace));
}

std::optional<std::string> BridgeOrders::take_message() {
  const std::scoped_lock lock(mutex_);
  if (outbox_.empty()) {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
    return std::nullopt;
  }
  std::string message = std::move(outbox_.front());
  outbox_.pop_front();
  return message;
}

void BridgeOrders::put_back(std::string message) {
  const std::scoped_lock lock(mutex_);
  outbox_.push_front(std::move(message));
}

std::optional<BridgeOrders::Order> BridgeOrders::open_order(std::uint64_t id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = orders_.find(id);
  if (found == orders_.end() || !found->second.node.empty()) return std::nullopt;
  return found->second;
}

void BridgeOrders::answered(std::uint64_t id, const std::string& from, const Traffic& traffic,
                            std::uint64_t now_ns) {
  const std::scoped_lock lock(mutex_);
  if (Node* const maker = node(from)) {
    maker->traffic.received += traffic.received;
    maker->traffic.sent += traffic.sent;
  }
  const auto found = orders_.find(id);
  if (found == orders_.end()) return;
  found->second.node = from;
  times_.answered(now_ns - found->second.since_ns);
  window_ = std::min(kMostUnderWay, window_ + 1);
}

void BridgeOrders::failed(std::uint64_t id) {
  std::shared_ptr<exec::RemoteBatch> batch;
  {
    const std::scoped_lock lock(mutex_);
    ++figures_.failed;
    const auto found = orders_.find(id);
    if (found == orders_.end()) return;
    found->second.late = true;
    batch = found->second.batch.lock();
  }
  if (batch) batch->make_here();
}

bool BridgeOrders::refuse(const std::string& name, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  Node* const refused = node(name);
  if (refused == nullptr || !refused->refused.empty()) return false;
  refused->refused = why;
  return true;
}

std::string BridgeOrders::refused(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  if (const auto found = figures_.nodes.find(name); found != figures_.nodes.end())
    return found->second.refused;
  // Further nodes could not be refused one by one: all of them are.
  return figures_.nodes.size() >= kMostNodes ? fmt::format("{} other nodes have made rows", kMostNodes) : "";
}

std::uint64_t BridgeOrders::take_late(std::uint64_t now_ns) {
  std::vector<std::shared_ptr<exec::RemoteBatch>> held;  // the last holder's end takes the lock
  std::uint64_t streams = 0;
  {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t after = times_.late_after_ns();
    for (auto& [id, order] : orders_) {
      if (order.late || !order.node.empty() || now_ns < order.since_ns + after) continue;
      order.late = true;
      held.push_back(order.batch.lock());
      if (!held.back() || !held.back()->make_here()) continue;
      ++figures_.late;
      streams |= std::uint64_t{1} << order.stream;
    }
    if (streams != 0) {
      times_.late();
      window_ = std::max(1U, std::min(most_, window_) / 2);
    }
  }
  return streams;
}

std::optional<std::uint64_t> BridgeOrders::next_check_ns() const {
  const std::scoped_lock lock(mutex_);
  if (orders_.empty()) return std::nullopt;
  std::uint64_t next = ring::monotonic_ns() + kLongestCheck;
  for (const auto& [id, order] : orders_)
    if (!order.late && order.node.empty()) next = std::min(next, order.since_ns + times_.late_after_ns());
  return next;
}

void BridgeOrders::drop(std::size_t stream) {
  const std::scoped_lock lock(mutex_);
  for (auto order = orders_.begin(); order != orders_.end();) {
    if (order->second.stream != stream) {
      ++order;
      continue;
    }
    push(json{{"release", order->first}}.dump());
    order = orders_.erase(order);
  }
}

BridgeOrders::Figures BridgeOrders::figures() const {
  const std::scoped_lock lock(mutex_);
  Figures figures = figures_;
  figures.under_way = orders_.size();
  return figures;
}

}  // namespace headrace::server::session
