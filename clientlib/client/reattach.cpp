// Attaches a stream again after its server exited, was restarted, or fenced it.
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "clientlib/client/private_views.h"
#include "clientlib/client/stream_impl.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAttempt{3000};
/// The shortest time that a listening server is given to answer, even if less of the reconnect timeout is
/// left.
constexpr milliseconds kShortestAttempt{1000};
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kLongestPause{250};
/// How long our previous session may still hold our rank, until the server notices that it has ended.
constexpr std::chrono::seconds kOldSessionTimeout{8};
/// After this time a warning tells the user why the loop does not go on.
constexpr std::chrono::seconds kWarnAfter{3};

/// Whether a retry may succeed: the server is not running, or it is starting or stopping, or other clients
/// still hold the memory of its predecessor's ring.
bool is_transient(ErrorCode code) {
  return code == ErrorCode::kServerUnreachable || code == ErrorCode::kServerLost ||
         code == ErrorCode::kTokenInvalid || code == ErrorCode::kDraining || code == ErrorCode::kTimeout ||
         code == ErrorCode::kNotEnoughMemory;
}

/// Whether our previous session may be the cause.
bool held_by_old_session(ErrorCode code) {
  return code == ErrorCode::kRankTaken || code == ErrorCode::kClientNameTaken || code == ErrorCode::kRingFull;
}

}  // namespace

void Stream::Impl::adopt(client::Session opened) {
  Fingerprint fingerprint = opened.stream.fingerprint;  // a copy may throw: nothing has changed yet
  attachment = std::move(opened.attachment);
  session = std::move(opened.reply.session);
  seek = opened.reply.seek;
  max_leases = opened.reply.max_leases;
  ++mapping_generation;
  lost_since.reset();
  how_it_ended = kUnreachable;
  warned.erase("back");
  info = std::move(opened.stream);
  identity.start = opened.reply.start;
  identity.fingerprint = std::move(fingerprint);
  identity.batching = wire::Batching{info.batch_size, info.last};
  identity.resume_server = false;
  position = opened.reply.cursor;
  length = opened.reply.length;
  epoch_length = opened.reply.epoch_length;
  batches_behind = opened.reply.batches_behind;
  set_commit_reader(attachment->reader);
}

void Stream::Impl::lose() {
  set_commit_reader(nullptr);
  if (attachment) attachment->reader->keep_viewed_only();
  attachment.reset();
  lost_since = Clock::now();
}

void Stream::Impl::abandon() {
  former = attachment;
  lose();
}

Result<void> Stream::Impl::reattach(const client::Deadline& deadline) {
  if (const auto old = former.lock()) {
    client::settle_private_views(*old);
    if (const auto views = old->live_views.load(std::memory_order_relaxed); views > 0)
      return fail(ErrorCode::kLeaseFenced, fmt::format("{} views from before the last attachment ended are "
                                                       "alive and hold their slots: release them first, "
                                                       "then call next() again",
                                                       views));
  }
  auto back = attach_again(deadline);
  // A call after an error waits for the whole reconnect timeout again.
  if (!back) lost_since.reset();
  return back;
}

Result<void> Stream::Impl::attach_again(const client::Deadline& deadline) {
  if (!lost_since) lost_since = Clock::now();
  auto left_behind = Clock::now();  // the last time at which the server may have made a session for us
  const Cursor wanted = position;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    wire::OpenRequest request = identity;
    request.position = wanted;
    const auto patience =
        std::chrono::ceil<milliseconds>(*lost_since + options.reconnect_timeout - Clock::now());
    const auto longest = std::max(kShortestAttempt, std::min(kAttempt, timeout));
    auto hello =
        client::say_hello(server, deadline.within(std::clamp(patience, milliseconds(1), longest)), interrupt);
    auto opened = hello ? client::open_session(
                              server, request, slots(),
                              deadline.within(std::clamp(patience, kShortestAttempt, longest)), interrupt)
                        : fail(hello.error());
    if (opened && opened->stream.on_device != info.on_device)
      return fail(
          ErrorCode::kFingerprintMismatch,
          fmt::format("stream '{}': the restarted server divides the transforms between itself and the "
                      "device differently (`device` in its configuration): open the stream again with the "
                      "same state",
                      info.name));
    if (opened) {
      const bool told = warned.erase("away") > 0;
      adopt(std::move(*opened));
      if (told &&
          warn("back", fmt::format("stream '{}': the server in {} is back", info.name, server.directory)) &&
          interrupted())
        return fail(ErrorCode::kTimeout, "interrupted by a warning");
      return {};
    }
    const Error& error = opened.error();
    if (interrupted())
      return fail(ErrorCode::kTimeout, "interrupted while waiting for the server to come back");
    const auto now = Clock::now();
    const bool held = held_by_old_session(error.code);
    if (!is_transient(error.code) && !(held && now - left_behind < kOldSessionTimeout)) return fail(error);
    if (hello && !held) left_behind = now;
    if (now - *lost_since > kWarnAfter &&
        warn("away",
             fmt::format("stream '{}': the server in {} {}; waiting up to {:.0f} s for it to come back",
                         info.name, server.directory, how_it_ended,
                         std::chrono::duration<double>(options.reconnect_timeout).count())) &&
        interrupted())
      return fail(ErrorCode::kTimeout, "interrupted by a warning");
    if (now - *lost_since >= options.reconnect_timeout)
      return fail(ErrorCode::kServerLost,
                  fmt::format("the server in {} {} and did not return within {:.1f} s "
                              "(reconnect_timeout); last error: {}",
                              server.directory, how_it_ended,
                              std::chrono::duration<double>(now - *lost_since).count(), error.to_string()));
    if (deadline.over())
      return fail(ErrorCode::kTimeout,
                  fmt::format("waited {:.1f} s for the server in {} to come back; last error: {}",
                              deadline.seconds_spent(), server.directory, error.to_string()));
    std::this_thread::sleep_for(std::min(pause, std::max(milliseconds(1), deadline.left())));
  }
}

}  // namespace headrace
