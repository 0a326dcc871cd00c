// The wait of a stream for its next batch: what ends it, and what is said of it.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "clientlib/client/delay_reason.h"
#include "clientlib/client/exchange.h"
#include "clientlib/client/private_views.h"
#include "clientlib/client/stream_impl.h"
#include "clientlib/ring/futex.h"

namespace headrace {
namespace {

using client::Deadline;
using std::chrono::milliseconds;

/// Time between two checks of signals, sockets and the lane's state.
constexpr milliseconds kCheckInterval{100};
/// A running server beats at least twice a second.
constexpr double kSilence = 3;  // seconds
/// A wait for a batch that is worth a warning.
constexpr double kLongWait = 10;  // seconds
/// A stopping server detaches lanes shortly before it closes their sockets.
constexpr int kClosingMs = 200;

bool session_ended(const client::Attachment& attachment) {
  if (attachment.lost.load(std::memory_order_acquire)) return true;
  pollfd entry{attachment.socket.get(), POLLIN, 0};
  while (::poll(&entry, 1, kClosingMs) < 0 && errno == EINTR) continue;
  if (entry.revents == 0) return attachment.lost.load(std::memory_order_acquire);
  char byte = 0;
  return ::recv(attachment.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

}  // namespace

Result<ring::Grant> Stream::Impl::wait_for_grant(const Deadline& deadline) {
  auto spin = options.spin;
  Deadline attached(deadline.left());  // the wait since the last attachment
  for (;;) {
    if (!attachment) {
      const Cursor due = position;
      if (auto back = reattach(deadline); !back) return fail(back.error());
      attached = Deadline(deadline.left());
      if (position != due)
        return fail(ErrorCode::kInternal, fmt::format("stream '{}': attached again at {}, expected {}",
                                                      info.name, to_string(position), to_string(due)));
    }
    ring::RingReader& reader = *attachment->reader;
    if (auto grant = reader.next(seek, std::min(kCheckInterval, deadline.left()), spin, &attachment->lost))
      return *grant;
    record_wait();
    spin = {};
    const std::uint32_t state = reader.lane_state();
    if ((state & ring::kLaneDraining) != 0) {
      how_it_ended = kStopped;
      client::settle_private_views(*attachment);  // the server waits for leases
    }
    const auto report_failure = [&]() -> Result<ring::Grant> {
      // Batches that were granted before the failure are still valid.
      if (auto grant = reader.next(seek, milliseconds(0), spin, nullptr)) return *grant;
      client::settle_private_views(*attachment);  // the server waits for leases
      return fail(stream_failure());
    };
    const bool failed = (state & ring::kLaneFailed) != 0;
    // A feed that ended does not come back with another server.
    if (failed && info.live &&
        (attachment->lost.load(std::memory_order_acquire) || (state & ring::kLaneFenced) == 0))
      return report_failure();
    if (attachment->lost.load(std::memory_order_acquire)) {
      lose();
    } else if ((state & ring::kLaneFenced) != 0) {
      if (session_ended(*attachment)) {
        lose();
        continue;
      }
      former = attachment;
      set_commit_reader(nullptr);
      attachment.reset();
      return fail(ErrorCode::kLeaseFenced,
                  fmt::format("stream '{}': this client sent no heartbeat for longer than the server's "
                              "eviction time (was the "
                              "process stopped, or the machine asleep?); the next call attaches again at {}",
                              info.name, to_string(position)));
    } else if (failed) {
      return report_failure();
    } else if (state != ring::kLaneOpen) {
      std::this_thread::sleep_for(milliseconds(10));  // draining: the server will close the socket soon
    }
    if (attachment && attached.seconds_spent() >= kLongWait && !deadline.over()) warn_of_wait(attached);
    if (interrupted()) return fail(ErrorCode::kTimeout, "interrupted while waiting for a batch");
    if (deadline.over()) return fail(ErrorCode::kTimeout, waited_for(deadline));
  }
}

Error Stream::Impl::stream_failure() const {
  const auto without_reason = [&](std::string_view where) {
    return Error{ErrorCode::kStreamFailed, fmt::format("stream '{}' failed{}", info.name, where)};
  };
  constexpr std::string_view kSeeLog = "; see the server's log";
  constexpr std::string_view kExited = " and its server has exited; see that server's log";
  if (attachment->lost.load(std::memory_order_acquire)) return without_reason(kExited);
  const auto reply = client::exchange(server, "failure", wire::to_json(wire::FailureRequest{session}),
                                      Deadline(timeout), interrupt)
                         .and_then([](const auto& a) { return wire::parse<wire::FailureReply>(a.body); });
  if (reply)
    return reply->why.empty() ? without_reason(kSeeLog) : Error{ErrorCode::kStreamFailed, reply->why};
  switch (reply.error().code) {
    case ErrorCode::kServerLost:
    case ErrorCode::kServerUnreachable:
      return without_reason(kExited);
    case ErrorCode::kBadMessage:  // of a server without this request
      return without_reason(kSeeLog);
    default:
      return reply.error();
  }
}

std::string Stream::Impl::waited_for(const Deadline& deadline) const {
  const double age =
      attachment
          ? 1e-9 * static_cast<double>(ring::monotonic_ns() - attachment->reader->server_heartbeat_ns())
          : 0;
  return fmt::format("stream '{}': waited {:.1f} s for {}; the server's last heartbeat was {:.1f} s ago. {}",
                     info.name, deadline.seconds_spent(), to_string(position), age,
                     age > kSilence
                         ? "It is stopped or hangs: continue it (kill -CONT), or restart it"
                         : client::reason_for_delay(server, info.name, position, deadline, interrupt));
}

void Stream::Impl::warn_of_wait(const Deadline& wait) {
  constexpr const char* kKind = "wait";
  if (warned.contains(kKind)) return;
  const std::string text = waited_for(wait);  // asks the server
  // Meanwhile a signal may have come: its exception must not meet the warning's.
  if (!interrupted()) warn(kKind, text);
}

}  // namespace headrace
