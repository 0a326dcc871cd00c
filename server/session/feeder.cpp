#include "server/session/feeder.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "clientlib/base/peer.h"
#include "clientlib/base/thrown.h"
#include "clientlib/ring/fd_passing.h"
#include "clientlib/wire/object_reader.h"
#include "server/log/log.h"
#include "server/session/admission.h"
#include "server/session/local_socket.h"

namespace headrace::server::session {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::uint32_t kVersion = 1;
constexpr milliseconds kForever{-1};
constexpr milliseconds kHelloTimeout{5000};
/// Pause before the next accept(2) after a failure, most often for lack of descriptors.
constexpr int kAcceptRetryMs = 100;
/// Interval of checks whether clients have had everything; only after the end.
constexpr milliseconds kServedCheck{20};
constexpr std::size_t kLongestReason = 3500;

/// Errors are ignored: a peer that does not read its packets notices the end of the connection.
void send_json(int socket, const json& what) {
  (void)ring::send_packet(socket, what.dump(-1, ' ', false, json::error_handler_t::replace), {});
}

}  // namespace

Result<std::unique_ptr<Feeder>> Feeder::start(std::shared_ptr<source::Feed> feed,
                                              const std::filesystem::path& directory, exec::Engine& engine,
                                              std::size_t stream) {
  if (auto memory = feed->allocate(); !memory) return fail(memory.error());
  const auto path = directory / fmt::format("feed-{}.sock", feed->options().name);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);  // left by a killed server: the directory is ours
  auto listener = listen_on(path, 8);
  if (!listener) return fail(listener.error());
  auto feeder = std::unique_ptr<Feeder>(new Feeder(std::move(feed), engine, stream));
  feeder->path_ = path;
  feeder->listener_ = std::move(*listener);
  feeder->stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!feeder->stop_) return fail(ErrorCode::kEnvironment, "no descriptor (eventfd) for a feed");
  feeder->thread_ = std::thread([raw = feeder.get()] { raw->run(); });
  return feeder;
}

Feeder::~Feeder() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

bool Feeder::ended_early(milliseconds patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (state_.load() == State::kFeeds && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(milliseconds(5));
  return state_.load() == State::kEndedEarly;
}

bool Feeder::wait(int fd, milliseconds timeout) const {
  pollfd polls[] = {{stop_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
  // A signal restarts the timeout: this process handles no frequent ones.
  while (::poll(polls, 2, static_cast<int>(timeout.count())) < 0 && errno == EINTR) {
  }
  return polls[0].revents == 0 && polls[1].revents != 0;
}

void Feeder::run() try {
  const ring::UniqueFd socket = accept_feeder();
  listener_.reset();
  if (!socket) return;
  feed_->when_freed([fd = socket.get()](std::uint32_t slot) { send_json(fd, {{"free", slot}}); });
  struct StopNotifying {  // runs before the socket closes, also after an exception
    source::Feed& feed;
    ~StopNotifying() { feed.when_freed({}); }
  };
  std::string why;
  {
    const StopNotifying stop_notifying{*feed_};
    why = receive(socket.get());
  }
  if (why.empty()) return;
  engine_.with(stream_, [&](exec::Stream& stream) {
    stream.end_feed(std::move(why), done_);
    return 0;
  });
  state_.store(done_ ? State::kDone : State::kEndedEarly);
  await_served(socket.get());
} catch (...) {
  state_.store(State::kEndedEarly);
  const char* const error = thrown();
  engine_.with(stream_, [error](exec::Stream& stream) {
    stream.stop_after("could not read the stream's feed", error);
    return 0;
  });
}

ring::UniqueFd Feeder::accept_feeder() {
  for (;;) {
    pollfd stopped{stop_.get(), POLLIN, 0};
    if (!wait(listener_.get(), kForever)) {
      if (::poll(&stopped, 1, 0) > 0) return {};
      continue;
    }
    ring::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      (void)::poll(&stopped, 1, kAcceptRetryMs);
      continue;
    }
    const auto peer = check_peer(socket.get());  // only this user and root: server.allow admits readers
    auto greeted = peer ? handshake(socket.get()) : fail(peer.error());
    if (greeted) {
      pid_ = peer->pid;
      log::info("pid {} feeds stream `{}`", pid_, engine_.stream(stream_).info().name);
      return socket;
    }
    refused_.refuse("feed `{}`: {} refused: {}", feed_->options().name, describe_peer(socket.get()),
                    greeted.error().message);
    send_json(socket.get(), {{"error", greeted.error().to_string()}});
  }
}

Result<void> Feeder::handshake(int socket) {
  if (!wait(socket, kHelloTimeout)) return fail(ErrorCode::kTimeout, "the peer sent no hello in time");
  auto packet = ring::receive_packet(socket, milliseconds(0));
  if (!packet) return fail(packet.error());
  const json hello = json::parse(packet->bytes, nullptr, false);
  std::uint32_t version = 0;
  if (auto read = wire::ObjectReader(hello, "feed hello").integer("feed", version).done(); !read)
    return fail(read.error());
  if (version != kVersion)
    return fail(ErrorCode::kVersionMismatch,
                fmt::format("feed protocol: expected version {}, found {}", kVersion, version));
  json fields = json::array();
  for (std::size_t f = 0; f < feed_->places().size(); ++f)
    fields.push_back({{"name", feed_->options().fields[f].name},
                      {"values", feed_->places()[f].values},
                      {"offsets", feed_->places()[f].offsets}});
  const json answer{{"feed", kVersion},
                    {"slots", feed_->options().slots},
                    {"slot_bytes", feed_->slot_bytes()},
                    {"fields", std::move(fields)}};
  const int memory = feed_->memory();
  return ring::send_packet(socket, answer.dump(), {&memory, 1});
}

std::string Feeder::receive(int socket) {
  for (;;) {
    if (!wait(socket, kForever)) {
      pollfd stopped{stop_.get(), POLLIN, 0};
      if (::poll(&stopped, 1, 0) > 0) return {};
      continue;
    }
    auto packet = ring::receive_packet(socket, milliseconds(0));
    if (!packet && packet.error().code == ErrorCode::kTimeout) continue;
    if (!packet && packet.error().code == ErrorCode::kServerLost)
      return fmt::format("the feeder (pid {}) exited", pid_);
    auto last = packet ? handle_packet(packet->bytes) : fail(packet.error());
    if (!last) {
      send_json(socket, {{"error", last.error().to_string()}});
      return fmt::format("the feeder (pid {}) sent an invalid packet: {}", pid_, last.error().to_string());
    }
    if (*last) return std::move(**last);
  }
}

Result<std::optional<std::string>> Feeder::handle_packet(const std::string& packet) {
  const json body = json::parse(packet, nullptr, false);
  wire::ObjectReader reader(body, "feed packet");
  if (body.is_object() && body.contains("end")) {
    std::string why;
    if (auto read = reader.text("end", why, kLongestReason).flag("done", done_).done(); !read)
      return fail(read.error());
    return why.empty() ? "the feeder gave no reason" : std::move(why);
  }
  source::Feed::Batch batch;
  if (auto read = reader.integer("batch", batch.number, wire::kMaxCount)
                      .integer("slot", batch.slot)
                      .integer("rows", batch.rows)
                      .done();
      !read)
    return fail(read.error());
  if (auto accepted = feed_->accept(batch); !accepted) return fail(accepted.error());
  engine_.with(stream_, [](exec::Stream& stream) {
    stream.batches_arrived();
    return 0;
  });
  return std::nullopt;
}

void Feeder::await_served(int socket) {
  const auto served = [&] {
    return engine_.inspect(stream_, [](const exec::Stream& stream) { return stream.served_to_end(); });
  };
  pollfd stopped{stop_.get(), POLLIN, 0};
  while (::poll(&stopped, 1, 0) == 0) {
    if (served()) return send_json(socket, {{"served", true}});
    if (!wait(socket, kServedCheck)) continue;
    auto packet = ring::receive_packet(socket, milliseconds(0));
    if (!packet && packet.error().code != ErrorCode::kTimeout) return;  // the feeder has disconnected
  }
}

}  // namespace headrace::server::session
