#include "server/session/bridge.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "clientlib/base/peer.h"
#include "clientlib/ring/fd_passing.h"
#include "clientlib/ring/futex.h"
#include "clientlib/wire/object_reader.h"
#include "server/log/barrier.h"
#include "server/log/log.h"
#include "server/session/admission.h"
#include "server/session/local_socket.h"

namespace headrace::server::session {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::uint32_t kBridgeProtocol = 1;
constexpr milliseconds kBridgeHello{5000};
/// Pause before the next accept(2) after a failure, most often for lack of descriptors.
constexpr int kBridgeRetryMs = 100;
/// A bridge that reads nothing for this long, in ns, is disconnected.
constexpr std::uint64_t kStuck = 10'000'000'000;
constexpr int kWhileFullMs = 100;
constexpr int kPacketsAtOnce = 16;
constexpr std::size_t kMostAddresses = 256;
constexpr std::size_t kLongestWhy = 2000;
constexpr std::size_t kMostTold = 1024;  // a bridge's names must not fill the memory

Result<void> send_object(int socket, const json& what) {
  return ring::send_packet(socket, what.dump(-1, ' ', false, json::error_handler_t::replace), {});
}

/// The longest wait, as poll() takes it, until a time; -1: for ever.
int wait_ms(std::optional<std::uint64_t> until_ns, std::uint64_t now_ns) {
  if (!until_ns) return -1;
  if (*until_ns <= now_ns) return 0;
  return static_cast<int>(std::min<std::uint64_t>((*until_ns - now_ns) / 1'000'000 + 1, 60'000));
}

}  // namespace

Result<std::unique_ptr<Bridge>> Bridge::start(const std::filesystem::path& directory, exec::Engine& engine,
                                              std::shared_ptr<BridgeOrders> orders) {
  auto bridge = std::unique_ptr<Bridge>(new Bridge(engine, std::move(orders)));
  bridge->path_ = directory / "bridge.sock";
  std::error_code ignored;
  std::filesystem::remove(bridge->path_, ignored);  // left by a killed server: the directory is ours
  auto listener = listen_on(bridge->path_, 8);
  if (!listener) return fail(listener.error());
  bridge->listener_ = std::move(*listener);
  bridge->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bridge->stop_ || bridge->orders_->wake() < 0)
    return fail(ErrorCode::kEnvironment, "no descriptor (eventfd) for the bridge");
  for (std::size_t i = 0; i < engine.stream_count(); ++i)
    bridge->by_stream_.push_back(bridge->orders_->of_stream(i));
  bridge->thread_ = std::thread([raw = bridge.get()] { raw->run(); });
  return bridge;
}

Bridge::~Bridge() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

bool Bridge::stopped(int milliseconds) const {
  pollfd stop{stop_.get(), POLLIN, 0};
  return ::poll(&stop, 1, milliseconds) > 0;
}

void Bridge::run() {
  while (!stopped(0)) {
    pollfd polls[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (::poll(polls, 2, -1) <= 0 || polls[1].revents == 0) continue;
    const ring::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (stopped(kBridgeRetryMs)) return;
      continue;
    }
    try {
      serve(socket.get());
    } catch (...) {
      log::thrown("the bridge's thread");
    }
  }
}

void Bridge::serve(int socket) {
  const auto peer = check_peer(socket);  // only this user and root: server.allow admits readers
  std::uint32_t most = 0;
  auto greeted = peer ? handshake(socket, most) : fail(peer.error());
  if (greeted) {
    auto memory = exec::ProcessMemory::open(static_cast<pid_t>(peer->pid), socket);
    if (memory)
      memory_ = std::move(*memory);
    else
      greeted = fail(memory.error());
  }
  if (!greeted) {
    refused_.refuse("bridge: {} refused: {}", describe_peer(socket), greeted.error().message);
    (void)send_object(socket, {{"error", greeted.error().to_string()}});
    return;
  }
  log::info("bridge: pid {} is connected: other nodes may make rows", peer->pid);
  const auto each_stream = [&](bool orders) {
    for (std::size_t i = 0; i < by_stream_.size(); ++i)
      engine_.with(i, [&](exec::Stream& stream) {
        stream.order_from(orders && stream.obstacle_to_orders().empty() ? by_stream_[i].get() : nullptr);
        return 0;
      });
  };
  struct AtEnd {
    std::function<void()> run;
    ~AtEnd() { run(); }
  };
  told_.clear();
  orders_->connected(most);
  const AtEnd disconnect{[&] {
    ::shutdown(socket, SHUT_RDWR);  // workers that copy rows see it, and so does the bridge
    orders_->disconnected();
    each_stream(false);
    memory_.reset();
  }};
  each_stream(true);
  const auto ended = exchange(socket);
  if (stopped(0)) return;
  if (!ended && ended.error().code != ErrorCode::kServerLost) {
    (void)send_object(socket, {{"error", ended.error().to_string()}});
    log::warn("bridge: pid {}: {}; this server makes all rows", peer->pid, ended.error().message);
  } else {
    log::warn("bridge: pid {} has disconnected; this server makes all rows", peer->pid);
  }
}

Result<void> Bridge::handshake(int socket, std::uint32_t& most) {
  pollfd polls[] = {{stop_.get(), POLLIN, 0}, {socket, POLLIN, 0}};
  ::poll(polls, 2, static_cast<int>(kBridgeHello.count()));
  auto packet = ring::receive_packet(socket, milliseconds(0));
  if (!packet) return fail(packet.error());
  const json hello = json::parse(packet->bytes, nullptr, false);
  std::uint32_t version = 0;
  if (auto read = wire::ObjectReader(hello, "bridge hello").integer("bridge", version).done(); !read)
    return fail(read.error());
  if (version != kBridgeProtocol)
    return fail(ErrorCode::kVersionMismatch,
                fmt::format("bridge protocol: expected version {}, found {}; install the same version of "
                            "headrace for both",
                            kBridgeProtocol, version));
  if (auto read =
          wire::ObjectReader(hello, "bridge hello").integer("most", most, BridgeOrders::kMostUnderWay).done();
      !read)
    return fail(read.error());
  return send_streams(socket);
}

Result<void> Bridge::send_streams(int socket) const {
  if (auto sent = send_object(socket, {{"bridge", kBridgeProtocol}, {"streams", engine_.stream_count()}});
      !sent)
    return sent;
  for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
    const exec::Stream& stream = engine_.stream(i);
    const json about{{"stream", i},
                     {"name", stream.info().name},
                     {"fingerprint", wire::to_json(stream.info().fingerprint)},
                     {"obstacle", stream.obstacle_to_orders()}};
    if (auto sent = send_object(socket, about); !sent) return sent;
  }
  return {};
}

Result<void> Bridge::exchange(int socket) {
  std::uint64_t full_since = 0;  // 0: the socket has room
  for (;;) {
    const bool full = full_since != 0;
    const std::uint64_t begin = ring::monotonic_ns();
    if (full && begin - full_since > kStuck)
      return fail(ErrorCode::kTimeout, "the bridge does not read its packets");
    const auto events = static_cast<short>(full ? POLLIN | POLLOUT : POLLIN);
    pollfd polls[] = {{stop_.get(), POLLIN, 0},
                      {socket, events, 0},
                      {listener_.get(), POLLIN, 0},
                      {full ? -1 : orders_->wake(), POLLIN, 0}};
    ::poll(polls, std::size(polls), full ? kWhileFullMs : wait_ms(orders_->next_check_ns(), begin));
    if (polls[0].revents != 0) return {};
    if (polls[2].revents != 0) refuse_another();
    for (int i = 0; i < kPacketsAtOnce && (polls[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0; ++i) {
      auto packet = ring::receive_packet(socket, milliseconds(0));
      if (!packet && packet.error().code == ErrorCode::kTimeout) break;
      if (!packet) return fail(packet.error());
      if (auto handled = handle(packet->bytes); !handled) return handled;
    }
    const auto sent = send_messages(socket);
    if (!sent) return fail(sent.error());
    full_since = *sent ? 0 : full ? full_since : begin;
    take_late();
    for (std::size_t i = 0; i < by_stream_.size(); ++i)
      if (engine_.stream(i).failed()) orders_->drop(i);
  }
}

void Bridge::refuse_another() {
  const ring::UniqueFd other(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!other) {
    (void)stopped(kBridgeRetryMs);
    return;
  }
  const Error error{ErrorCode::kEnvironment, "another bridge is connected to this server; stop it first"};
  (void)send_object(other.get(), {{"error", error.to_string()}});
}

Result<bool> Bridge::send_messages(int socket) {
  while (auto message = orders_->take_message()) {
    auto sent = ring::send_packet(socket, *message, {});
    if (sent) continue;
    if (sent.error().code != ErrorCode::kTimeout) return fail(sent.error());
    orders_->put_back(std::move(*message));
    return false;
  }
  return true;
}

Result<void> Bridge::handle(const std::string& packet) {
  const json body = json::parse(packet, nullptr, false);
  if (body.is_object() && body.contains("made")) return handle_made(body);
  if (body.is_object() && body.contains("failed")) return handle_failed(body);
  std::uint32_t most = 0;
  if (auto read =
          wire::ObjectReader(body, "bridge packet").integer("most", most, BridgeOrders::kMostUnderWay).done();
      !read)
    return fail(read.error());
  orders_->limit(most);
  for (std::size_t i = 0; i < by_stream_.size(); ++i) wake_workers(i);
  return {};
}

void Bridge::tell_refused(const std::string& node, const std::string& why) {
  if (told_.size() == kMostTold) told_.clear();
  if (told_.insert(node).second) orders_->send({{"refused", node}, {"why", why}});
}

Result<void> Bridge::handle_failed(const json& body) {
  std::uint64_t id = 0;
  std::string node, why;
  if (auto read = wire::ObjectReader(body, "bridge packet")
                      .integer("failed", id)
                      .name("node", node)
                      .text("why", why, kLongestWhy)
                      .done();
      !read)
    return fail(read.error());
  const auto order = orders_->open_order(id);
  orders_->failed(id);
  if (!order) return {};
  log::warn("bridge: node `{}` did not make rows of stream `{}`: {}", node,
            engine_.stream(order->stream).info().name, why);
  wake_workers(order->stream);
  return {};
}

Result<void> Bridge::handle_made(const json& body) {
  std::uint64_t id = 0;
  BridgeOrders::Traffic traffic;
  std::string node;
  exec::RemoteRows rows;
  const auto address = [](const json& found, std::uint64_t& out) -> Result<void> {
    if (!found.is_number_unsigned())
      return fail(ErrorCode::kBadMessage, "bridge packet: an address is no number");
    out = found.get<std::uint64_t>();
    return {};
  };
  if (auto read = wire::ObjectReader(body, "bridge packet")
                      .integer("made", id)
                      .name("node", node)
                      .integer("received", traffic.received, wire::kMaxCount)
                      .integer("sent", traffic.sent, wire::kMaxCount)
                      .list("fields", rows.fields, kMostAddresses, address)
                      .integer("samples", rows.samples)
                      .integer("replaced", rows.replaced)
                      .done();
      !read)
    return fail(read.error());
  if (node.empty()) return fail(ErrorCode::kBadMessage, "bridge packet: member 'node' is empty");
  const auto order = orders_->open_order(id);
  if (!order) return {};  // it was released meanwhile
  const exec::Stream& stream = engine_.stream(order->stream);
  if (rows.fields.size() != stream.maker().fields().size())
    return fail(ErrorCode::kBadMessage,
                fmt::format("stream `{}` has {} fields, found {} addresses", stream.info().name,
                            stream.maker().fields().size(), rows.fields.size()));
  const auto batch = order->batch.lock();
  if (!batch) return {};
  rows.memory = memory_;
  if (const std::string refused = orders_->refused(node); !refused.empty()) {
    orders_->failed(id);
    tell_refused(node, refused);
  } else if (auto wrong = check(*order, static_cast<std::uint32_t>(random_()) % order->rows.rows, rows);
             !wrong) {
    orders_->failed(id);
    log::warn("bridge: rows of stream `{}` from node `{}` were not used: {}", stream.info().name, node,
              wrong.error().message);
  } else if (!wrong->empty()) {
    orders_->failed(id);
    if (orders_->refuse(node, *wrong)) {
      log::error("bridge: node `{}` made wrong rows and gets no further orders: stream `{}`: {}", node,
                 stream.info().name, *wrong);
      tell_refused(node, *wrong);
    }
  } else {
    orders_->answered(id, node, traffic, ring::monotonic_ns());
    (void)batch->arrive(std::move(rows));  // false: it was taken back during the check
  }
  wake_workers(order->stream);
  return {};
}

Result<std::string> Bridge::check(const BridgeOrders::Order& order, std::uint32_t row,
                                  const exec::RemoteRows& rows) {
  const exec::SampleMaker& maker = engine_.stream(order.stream).maker();
  const std::uint64_t position = order.rows.first + row;
  const auto name = [&] { return fmt::format("position {} of epoch {}", position, order.epoch); };
  std::uint64_t sample = 0;
  std::uint8_t replaced = 0;
  std::string found(std::accumulate(maker.fields().begin(), maker.fields().end(), std::size_t{0},
                                    [&, f = std::size_t{0}](std::size_t sum, const FieldSpec&) mutable {
                                      return sum + maker.row_size(f++);
                                    }),
                    '\0');
  std::vector<iovec> to{{&sample, sizeof sample}, {&replaced, sizeof replaced}};
  std::vector<iovec> from{exec::RemoteRows::part(rows.samples, row, 1, sizeof sample),
                          exec::RemoteRows::part(rows.replaced, row, 1, sizeof replaced)};
  to.push_back({found.data(), found.size()});
  for (std::size_t f = 0; f < rows.fields.size(); ++f)
    from.push_back(exec::RemoteRows::part(rows.fields[f], row, 1, maker.row_size(f)));
  if (!rows.memory->read(to, from))
    return fail(
        ErrorCode::kEnvironment,
        "the memory of the bridge's process cannot be read: it ended, or the system does not allow it "
        "(kernel.yama.ptrace_scope, seccomp)");
  exec::LooseRow own(maker);
  const auto made = maker.show(order.epoch, position, own.fields, scratch_);
  if (!made) return fail(made.error());
  if (made->replaced && replaced != 0) return std::string();  // made here, whatever is there
  if (made->sample_index != sample)
    return fmt::format("{} has sample {} there, but {} here: do both read the same files?", name(), sample,
                       made->sample_index);
  if (made->replaced != (replaced != 0))
    return fmt::format("the sample at {} is bad only {}: do both read the same files?", name(),
                       made->replaced ? "here" : "there");
  if (own.bytes() != found)
    return fmt::format("{} has other values there: do both read the same files?", name());
  return std::string();
}

void Bridge::take_late() {
  for (std::uint64_t streams = orders_->take_late(ring::monotonic_ns()); streams != 0; streams &= streams - 1)
    wake_workers(static_cast<std::size_t>(std::countr_zero(streams)));
}

void Bridge::wake_workers(std::size_t stream) {
  engine_.with(stream, [](exec::Stream&) { return 0; });
}

}  // namespace headrace::server::session
