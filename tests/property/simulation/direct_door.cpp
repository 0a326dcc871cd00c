#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <new>

#include "tests/property/simulation/door.h"

namespace headrace::testing {

using server::exec::Engine;
using server::exec::Stream;

namespace {

/// No address space is left while this exists, as far as the ring's segments are concerned.
class NoMemory {
 public:
  explicit NoMemory(bool applies) : applies_(applies) {
    if (!applies_) return;
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit none{.rlim_cur = 1, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &none);
  }
  ~NoMemory() {
    if (applies_) ::setrlimit(RLIMIT_AS, &before_);
  }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

 private:
  const bool applies_;
  rlimit before_{};
};

/// What session::Sessions does, without sockets.
class DirectDoor final : public Door {
 public:
  DirectDoor(Engine& engine, Record& record)
      : Door(engine, record), doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  [[nodiscard]] std::uint64_t token_life_ns() const override { return 300'000'000; }

  Result<wire::AttachReply> open(Connection& connection, const wire::OpenRequest& request,
                                 std::uint64_t /*now_ns*/) override {
    return engine_.open(connection.stream, request);
  }

  Result<std::shared_ptr<ring::RingReader>> attach(Connection& connection, bool memory,
                                                   std::uint64_t now_ns) override {
    auto lease = make_lease(connection, memory);
    if (!lease) {
      close(connection, now_ns);
      return fail(lease.error());
    }
    auto attachment = engine_.with(connection.stream, [&](Stream& stream) {
      return stream.lanes().attach(connection.lane, std::move(*lease), now_ns);
    });
    const auto copy = [](int fd) { return ring::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); };
    return ring::RingReader::open({copy(attachment.data_fd), copy(attachment.control_fd),
                                   std::move(attachment.lease_fd), copy(doorbell_.get())},
                                  connection.lane);
  }

  Result<wire::CursorSetReply> seek(const Connection& connection, const Cursor& cursor) override {
    return engine_.with(connection.stream, [&](Stream& stream) -> Result<wire::CursorSetReply> {
      if (auto allowed = stream.lanes().may_seek(connection.lane); !allowed) return fail(allowed.error());
      return stream.seek(connection.lane, cursor);
    });
  }

  void look_after(const Connections& connections, std::uint64_t now_ns) override {
    for (const auto& connection : connections)
      if (!connection->server_closed &&
          (connection->client_closed || (!connection->attached && connection->expires_ns < now_ns)))
        close(*connection, now_ns);
    for (std::size_t i = 0; i < engine_.stream_count(); ++i) {
      const auto errors =
          engine_.inspect(i, [](const Stream& stream) { return stream.lanes().protocol_errors(); });
      for (const auto& [lane, why] : errors)
        for (const auto& connection : connections)
          if (connection->stream == i && connection->lane == lane && !connection->server_closed)
            close(*connection, now_ns);
      engine_.with(i, [&](Stream& stream) { return stream.fence_stuck(now_ns, kEvictNs); });
    }
  }

 private:
  Result<ring::Segment> make_lease(const Connection& connection, bool memory) try {
    const NoMemory none(!memory);
    return engine_.stream(connection.stream).make_lease();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kNotEnoughMemory, "no memory for the call itself");
  }

  void close(Connection& connection, std::uint64_t now_ns) {
    engine_.with(connection.stream, [&](Stream& stream) {
      stream.close(connection.lane, now_ns);
      return 0;
    });
    connection.server_closed = true;
  }

  const ring::UniqueFd doorbell_;
};

}  // namespace

std::unique_ptr<Door> make_direct_door(Engine& engine, Record& record) {
  return std::make_unique<DirectDoor>(engine, record);
}

}  // namespace headrace::testing
