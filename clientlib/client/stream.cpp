#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <utility>

#include "clientlib/client/lease.h"
#include "clientlib/client/no_memory.h"
#include "clientlib/client/private_views.h"
#include "clientlib/client/resume.h"
#include "clientlib/client/stream_impl.h"
#include "clientlib/ring/futex.h"

namespace headrace {
namespace {

using client::Deadline;
using std::chrono::milliseconds;

/// From this size on, copying a batch takes longer than checking which of its pages were written to.
constexpr std::uint64_t kWorthAView = 256 << 10;

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
  // Warn before a grant is consumed: a warning may end the call (Python: warnings as errors), which must not
  // lose a batch.
  if ((warn_of_copies() || warn_of_lag()) && interrupted())
    return fail(ErrorCode::kTimeout, "interrupted by a warning");
  const auto grant = take_intact(deadline);
  if (!grant) return fail(grant.error());
  try {
    BatchView view = view_of(*grant);
    ++position.batch;
    begun = true;
    return view;
  } catch (const std::bad_alloc&) {
    abandon();  // the server counts the batch as delivered
    return fail(
        ErrorCode::kNotEnoughMemory,
        fmt::format("stream '{}': no memory for a copy of {}; keep fewer batches, then call next() again for "
                    "the same batch",
                    info.name, to_string(position)));
  }
}

Result<ring::Grant> Stream::Impl::take_grant(const Deadline& deadline) {
  wait_recorded_ns = ring::monotonic_ns();
  auto grant = wait_for_grant(deadline);
  record_wait();
  if (!grant || (grant->epoch == position.epoch && grant->batch == position.batch)) return grant;
  attachment->reader->ack(*grant);
  return fail(ErrorCode::kInternal,
              fmt::format("stream '{}': the server granted epoch {}, batch {}; expected {}", info.name,
                          grant->epoch, grant->batch, to_string(position)));
}

void Stream::Impl::record_wait() {
  const std::uint64_t now = ring::monotonic_ns();
  const std::uint64_t waited = now - std::exchange(wait_recorded_ns, now);
  waited_ns.fetch_add(waited, std::memory_order_relaxed);
  if (attachment && options.commits == Commits::kByNext)
    attachment->reader->lease().wait_ns.fetch_add(waited, std::memory_order_relaxed);
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
  return warn(
      "private copies",
      fmt::format("stream '{}': {} views are alive, of {} leases, so batches are copied from now on; release "
                  "views sooner, raise ring.max_leases, or in Python use zero_copy=False",
                  info.name, views, max_leases));
}

bool Stream::Impl::warn_of_lag() {
  const std::uint32_t behind = std::exchange(batches_behind, 0);
  if (behind == 0) return false;
  return warn(
      "behind",
      fmt::format(
          "stream '{}': client '{}' begins {}{} batches behind the foremost client; the server makes these "
          "batches again, and decodes again the rows that it kept for nobody else. To avoid that, start the "
          "jobs together (sharing.wait_for), or skip these batches with join=\"now\"",
          info.name, identity.client, behind >= wire::kMostBehind ? "at least " : "", behind));
}

void Stream::Impl::commit() {
  if (options.commits == Commits::kByNext && attachment) attachment->reader->commit(position);
}

void Stream::Impl::commit(const Cursor& consumed, std::chrono::nanoseconds waited) {
  const std::lock_guard lock(commit_mutex);
  committed = consumed;
  uncounted += waited;
  if (!commit_reader) return;
  commit_reader->commit(consumed);
  commit_reader->lease().wait_ns.fetch_add(static_cast<std::uint64_t>(std::exchange(uncounted, {}).count()),
                                           std::memory_order_relaxed);
}

void Stream::Impl::set_commit_reader(std::shared_ptr<ring::RingReader> reader) {
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

Result<void> Stream::Impl::skip_forward(const Cursor& target) {
  if (target < position)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}' is live (headrace.share()) and cannot go back to {}: the next batch is {}",
                    info.name, to_string(target), to_string(position)));
  skip_to = target;
  begun = false;
  return {};
}

Result<wire::CursorSetReply> Stream::Impl::request_move(const Cursor& target,
                                                        const std::optional<wire::DamagedSlot>& damaged) const
    try {
  const auto answer =
      client::exchange(server, "cursor_set", wire::to_json(wire::CursorSetRequest{session, target, damaged}),
                       Deadline(timeout), interrupt);
  if (!answer) return fail(answer.error());
  return wire::parse<wire::CursorSetReply>(answer->body);
} catch (const std::bad_alloc&) {
  return client::no_memory("to move stream '" + info.name + "'");
}

Result<void> Stream::Impl::go_to(const Cursor& target) {
  if (info.live) return skip_forward(target);
  if (attachment && !attachment->lost.load(std::memory_order_acquire)) {
    const auto reply = request_move(target);
    if (reply) {
      begun = false;
      batches_behind = 0;  // the loop has chosen where to begin
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
      abandon();  // the server may have moved the lane, with a seek number that we do not know
    // A new attachment would fail with any other error again.
    if (!ended && code != ErrorCode::kServerUnreachable) return fail(reply.error());
  } else {
    lose();
  }
  const Cursor before = std::exchange(position, target);
  auto back = reattach(Deadline(options.reconnect_timeout));
  if (attachment)
    begun = false;  // also if a warning has interrupted the call: the server is at `target`
  else
    position = before;
  return back;
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

Result<std::optional<BatchView>> Stream::next(milliseconds timeout) try {
  return impl_->next(timeout);
} catch (const std::bad_alloc&) {
  return client::no_memory("to read stream '" + impl_->info.name + "'");
}

std::uint32_t Stream::ready() const {
  return impl_->attachment ? impl_->attachment->reader->ready(impl_->seek) : 0;
}

Result<void> Stream::set_epoch(std::uint64_t epoch) try {
  Impl& my = *impl_;
  if (auto own = my.fork.check("stream"); !own) return own;
  if (my.position.batch >= my.length && epoch == my.position.epoch + 1) my.begin_epoch(epoch);
  // Also after a state was loaded: the usual loop calls set_epoch() with the epoch that it resumes.
  if (!my.begun && my.due().epoch == epoch) return {};
  return my.go_to({epoch, 0, 0});
} catch (const std::bad_alloc&) {
  return client::no_memory("to move stream '" + impl_->info.name + "'");
}

Result<void> Stream::next_epoch() try {
  Impl& my = *impl_;
  if (auto own = my.fork.check("stream"); !own) return own;
  if (!my.begun) return {};
  return set_epoch(my.position.epoch + 1);
} catch (const std::bad_alloc&) {
  return client::no_memory("to move stream '" + impl_->info.name + "'");
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

Result<void> Stream::load_state(const State& state) try {
  Impl& my = *impl_;
  if (auto own = my.fork.check("stream"); !own) return own;
  if (my.info.live)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream '{}' is live (headrace.share()) and cannot load a state: each of its batches is "
                    "delivered once",
                    my.info.name));
  auto cursor = client::resume_cursor(state, my.info, my.identity.world_size);
  if (!cursor) return fail(cursor.error());
  if (*cursor == my.position) {
    my.begun = false;
    return {};
  }
  return my.go_to(*cursor);
} catch (const std::bad_alloc&) {
  return client::no_memory("to move stream '" + impl_->info.name + "'");
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
