#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <thread>
#include <utility>

#include "clientlib/client/holdup.h"
#include "clientlib/client/lease.h"
#include "clientlib/client/private_views.h"
#include "clientlib/client/resume.h"
#include "clientlib/client/stream_impl.h"
#include "clientlib/ring/futex.h"

namespace headrace {
namespace {

using client::Deadline;
using std::chrono::milliseconds;

/// Between two looks at signals, sockets and lane state.
constexpr milliseconds kLook{100};
/// A server that stops takes lanes away a moment before it closes their sockets.
constexpr int kClosingMs = 200;
/// Bytes from which copying takes longer than looking which pages were written to.
constexpr std::uint64_t kWorthAView = 256 << 10;

bool session_ended(const client::Attachment& attachment) {
  if (attachment.lost.load(std::memory_order_acquire)) return true;
  pollfd entry{attachment.socket.get(), POLLIN, 0};
  while (::poll(&entry, 1, kClosingMs) < 0 && errno == EINTR) continue;
  if (entry.revents == 0) return attachment.lost.load(std::memory_order_acquire);
  char byte = 0;
  return ::recv(attachment.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

}  // namespace

Result<std::optional<BatchView>> Stream::Impl::next(milliseconds limit) {
  if (auto own = fork.check("stream"); !own) return fail(own.error());
  commit();
  const Deadline deadline(limit);
  if (auto skipped = skip(deadline); !skipped) return fail(skipped.error());
  if (position.batch >= length) {
    begin_epoch(position.epoch + 1);
    return std::nullopt;
  }
  // Before a batch is taken: a warning may end the call (Python: warnings as errors), and must not cost one.
  if (warn_of_copies() && interrupted()) return fail(ErrorCode::kTimeout, "interrupted by a warning");
  const auto grant = take_grant(deadline);
  if (!grant) return fail(grant.error());
  try {
    BatchView view = view_of(*grant);
    ++position.batch;
    begun = true;
    return view;
  } catch (const std::bad_alloc&) {
    leave();  // the server counts the batch as taken
    return fail(
        ErrorCode::kNotEnoughMemory,
        fmt::format("stream '{}': no memory for a copy of {}: keep fewer batches; the next call comes "
                    "back to it",
                    info.name, to_string(position)));
  }
}

Result<ring::Grant> Stream::Impl::take_grant(const Deadline& deadline) {
  const std::uint64_t asked = ring::monotonic_ns();
  auto grant = wait_for_grant(deadline);
  const std::uint64_t waited = ring::monotonic_ns() - asked;
  waited_ns.fetch_add(waited, std::memory_order_relaxed);
  if (attachment && options.commits == Commits::kByNext)
    attachment->reader->lease().wait_ns.fetch_add(waited, std::memory_order_relaxed);
  if (!grant || (grant->epoch == position.epoch && grant->batch == position.batch)) return grant;
  attachment->reader->ack(*grant);
  return fail(ErrorCode::kInternal,
              fmt::format("stream '{}': the server granted epoch {}, batch {}; due is {}", info.name,
                          grant->epoch, grant->batch, to_string(position)));
}

Result<void> Stream::Impl::skip(const Deadline& deadline) {
  while (position < skip_to) {
    if (position.batch >= length) {
      begin_epoch(position.epoch + 1);
      continue;
    }
    const auto grant = take_grant(deadline);
    if (!grant) return fail(grant.error());
    attachment->reader->ack(*grant);
    ++position.batch;
  }
  return {};
}

Result<ring::Grant> Stream::Impl::wait_for_grant(const Deadline& deadline) {
  auto spin = options.spin;
  for (;;) {
    if (!attachment) {
      const Cursor due = position;
      if (auto back = reattach(deadline); !back) return fail(back.error());
      if (position != due)
        return fail(ErrorCode::kInternal, fmt::format("stream '{}': attached again at {} instead of {}",
                                                      info.name, to_string(position), to_string(due)));
    }
    ring::RingReader& reader = *attachment->reader;
    if (auto grant = reader.next(seek, std::min(kLook, deadline.left()), spin, &attachment->lost))
      return *grant;
    spin = {};
    const std::uint32_t state = reader.lane_state();
    if ((state & ring::kLaneDraining) != 0) {
      how_it_ended = kStopped;
      client::settle_private_views(*attachment);  // the server waits for leases
    }
    if (attachment->lost.load(std::memory_order_acquire)) {
      lose();
    } else if ((state & ring::kLaneFenced) != 0) {
      if (session_ended(*attachment)) {
        lose();
        continue;
      }
      former = attachment;
      let_commit(nullptr);
      attachment.reset();
      return fail(
          ErrorCode::kLeaseFenced,
          fmt::format(
              "stream '{}': this client gave no sign of life for longer than the server's eviction time "
              "(stopped, or its machine asleep); the next call attaches again at {}",
              info.name, to_string(position)));
    } else if ((state & ring::kLaneFailed) != 0) {
      // What was granted before it failed is still to be had.
      if (auto grant = reader.next(seek, milliseconds(0), spin, nullptr)) return *grant;
      return fail(stream_failure());
    } else if (state != ring::kLaneOpen) {
      std::this_thread::sleep_for(milliseconds(10));  // draining: the end of the socket is near
    }
    if (interrupted()) return fail(ErrorCode::kTimeout, "interrupted while waiting for a batch");
    if (deadline.over()) return fail(timed_out(deadline));
  }
}

Stream::Impl::~Impl() {
  if (fork.forked()) return;
  if (attachment) client::settle_private_views(*attachment);
  if (const auto old = former.lock()) client::settle_private_views(*old);
}

ring::RingReader::Slots Stream::Impl::slots() const {
  return options.batches == Batches::kShared ? ring::RingReader::Slots::kShared
                                             : ring::RingReader::Slots::kPrivate;
}

bool Stream::Impl::copies_on_write(const ring::Grant& grant) const {
  return attachment->reader->private_pages() != nullptr &&
         attachment->reader->slot(grant.slot).payload_bytes >= kWorthAView &&
         !attachment->writes_to_batches.load(std::memory_order_relaxed);
}

BatchView Stream::Impl::view_of(const ring::Grant& grant) {
  const std::uint32_t views = attachment->live_views.load(std::memory_order_relaxed);
  if (views + 1 < max_leases && (!private_batches() || copies_on_write(grant)))
    return BatchView(BatchView::Lease::on_slot(attachment, grant, private_batches()));
  if (!private_batches()) attachment->reader->lease().private_copies.fetch_add(1, std::memory_order_relaxed);
  if (!pool) pool = std::make_shared<client::BufferPool>(info.fields.size());
  return BatchView(BatchView::Lease::copy_of(*attachment, grant, pool));
}

bool Stream::Impl::warn_of_copies() {
  const std::uint32_t views = attachment ? attachment->live_views.load(std::memory_order_relaxed) : 0;
  if (views == 0 || views + 1 < max_leases || private_batches()) return false;
  return warn("private copies",
              fmt::format("stream '{}': {} views are alive, of {} leases: batches are copied "
                          "from here on. Release views sooner, "
                          "turn zero_copy off, or raise ring.max_leases",
                          info.name, views, max_leases));
}

void Stream::Impl::commit() {
  if (options.commits == Commits::kByNext && attachment) attachment->reader->commit(position);
}

void Stream::Impl::commit(const Cursor& consumed, std::chrono::nanoseconds waited) {
  const std::lock_guard lock(commit_mutex);
  committed = consumed;
  if (!commit_reader) return;
  commit_reader->commit(consumed);
  commit_reader->lease().wait_ns.fetch_add(static_cast<std::uint64_t>(waited.count()),
                                           std::memory_order_relaxed);
}

void Stream::Impl::let_commit(std::shared_ptr<ring::RingReader> reader) {
  if (options.commits == Commits::kByNext) return;
  const std::lock_guard lock(commit_mutex);
  commit_reader = std::move(reader);
  if (commit_reader && committed) commit_reader->commit(*committed);
}

void Stream::Impl::begin_epoch(std::uint64_t epoch) {
  position = {epoch, 0, 0};
  length = epoch_length;
  begun = false;
}

Result<void> Stream::Impl::leave_out(const Cursor& target) {
  if (target < position)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}' is live (headrace.share()): {} has gone, {} is due; its order and where "
                    "it resumes are its feeder's",
                    info.name, to_string(target), to_string(position)));
  skip_to = target;
  begun = false;
  return {};
}

Result<void> Stream::Impl::go_to(const Cursor& target) {
  if (info.live) return leave_out(target);
  if (attachment && !attachment->lost.load(std::memory_order_acquire)) {
    auto answer =
        client::exchange(server, "cursor_set", wire::to_json(wire::CursorSetRequest{session, target}),
                         Deadline(timeout), interrupt);
    Result<wire::CursorSetReply> reply =
        answer ? wire::parse<wire::CursorSetReply>(answer->body) : fail(answer.error());
    if (reply) {
      begun = false;
      seek = reply->seek;
      position = reply->cursor;
      length = reply->length;
      epoch_length = reply->epoch_length;
      if (options.commits == Commits::kByCaller)
        commit(position, {});
      else
        commit();
      return {};
    }
    const ErrorCode code = reply.error().code;
    const bool ended = code == ErrorCode::kTokenInvalid || code == ErrorCode::kServerLost;
    if (ended)
      lose();
    else
      leave();  // the server may have moved the lane, under a seek number that we do not know
    // Other errors a new attachment would not cure.
    if (!ended && code != ErrorCode::kServerUnreachable) return fail(reply.error());
  } else {
    lose();
  }
  const Cursor before = std::exchange(position, target);
  auto back = reattach(Deadline(options.reconnect_timeout));
  if (back)
    begun = false;
  else
    position = before;
  return back;
}

Error Stream::Impl::stream_failure() const {
  const auto reply = client::exchange(server, "failure", wire::to_json(wire::FailureRequest{session}),
                                      Deadline(timeout), interrupt)
                         .and_then([](const auto& a) { return wire::parse<wire::FailureReply>(a.body); });
  if (!reply && reply.error().code != ErrorCode::kBadMessage) return reply.error();
  if (reply && !reply->why.empty()) return {ErrorCode::kStreamFailed, reply->why};
  return {ErrorCode::kStreamFailed, fmt::format("stream '{}' failed; the server's log says why", info.name)};
}

Error Stream::Impl::timed_out(const Deadline& deadline) const {
  const double age =
      attachment
          ? 1e-9 * static_cast<double>(ring::monotonic_ns() - attachment->reader->server_heartbeat_ns())
          : 0;
  return {ErrorCode::kTimeout,
          fmt::format("stream '{}': waited {:.1f} s for {}; the server gave its last sign of life {:.1f} s "
                      "ago. {}",
                      info.name, deadline.seconds_spent(), to_string(position), age,
                      client::what_is_waited_for(server, info.name, position, deadline, interrupt))};
}

bool Stream::Impl::warn(const std::string& kind, const std::string& text) {
  if (!warned.insert(kind).second) return false;
  if (options.warn)
    options.warn(text);
  else
    std::fprintf(stderr, "headrace: %s\n", text.c_str());
  return true;
}

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

Stream::~Stream() = default;

const StreamInfo& Stream::info() const {
  return impl_->info;
}
const OpenOptions& Stream::options() const {
  return impl_->options;
}
const std::string& Stream::address() const {
  return impl_->server.directory;
}
const std::vector<std::uint32_t>& Stream::allow_uids() const {
  return impl_->server.allow_uids;
}
std::uint64_t Stream::length() const {
  return impl_->length;
}
std::uint64_t Stream::epoch_length() const {
  return impl_->epoch_length;
}
bool Stream::begun() const {
  return impl_->begun;
}
std::uint64_t Stream::epoch() const {
  return impl_->due().epoch;
}

Result<std::optional<BatchView>> Stream::next(milliseconds timeout) {
  return impl_->next(timeout);
}

std::uint32_t Stream::ready() const {
  return impl_->attachment ? impl_->attachment->reader->ready(impl_->seek) : 0;
}

Result<void> Stream::set_epoch(std::uint64_t epoch) {
  Impl& my = *impl_;
  if (auto own = my.fork.check("stream"); !own) return own;
  if (my.position.batch >= my.length && epoch == my.position.epoch + 1) my.begin_epoch(epoch);
  // Also behind a checkpoint: the usual loop calls set_epoch() with the epoch that it resumes.
  if (!my.begun && my.due().epoch == epoch) return {};
  return my.go_to({epoch, 0, 0});
}

Result<void> Stream::next_epoch() {
  Impl& my = *impl_;
  if (auto own = my.fork.check("stream"); !own) return own;
  if (!my.begun) return {};
  return set_epoch(my.position.epoch + 1);
}

Cursor Stream::cursor() const {
  const Impl& my = *impl_;
  const Cursor& due = my.due();
  return due.batch >= my.length ? Cursor{due.epoch + 1, 0, 0} : due;
}

State Stream::state() const {
  const Impl& my = *impl_;
  return {cursor(), my.info.batch_size, my.identity.world_size, my.info.name, my.info.fingerprint};
}

Result<void> Stream::load_state(const State& state) {
  Impl& my = *impl_;
  if (auto own = my.fork.check("stream"); !own) return own;
  if (my.info.live)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}' is live (headrace.share()): a state cannot be loaded, each batch comes "
                    "once; its order and where it resumes are its feeder's",
                    my.info.name));
  auto cursor = client::resume_cursor(state, my.info, my.identity.world_size);
  if (!cursor) return fail(cursor.error());
  if (*cursor == my.position) {
    my.begun = false;
    return {};
  }
  return my.go_to(*cursor);
}

void Stream::commit(const Cursor& consumed, std::chrono::nanoseconds waited) {
  impl_->commit(consumed, waited);
}

void Stream::set_interrupt(std::function<bool()> interrupt) {
  impl_->interrupt = std::move(interrupt);
}
std::uint32_t Stream::max_leases() const {
  return impl_->max_leases;
}

std::uint32_t Stream::live_views() const {
  return impl_->attachment ? impl_->attachment->live_views.load(std::memory_order_relaxed) : 0;
}

std::span<std::byte> Stream::mapping() const {
  const bool shared = impl_->attachment && impl_->options.batches == Batches::kShared;
  return shared ? impl_->attachment->reader->data() : std::span<std::byte>();
}

std::uint64_t Stream::mapping_generation() const {
  return impl_->mapping_generation;
}
std::chrono::nanoseconds Stream::waited() const {
  return std::chrono::nanoseconds(impl_->waited_ns.load());
}

}  // namespace headrace
