// Lanes: how clients open, attach, seek and close.
#include <fmt/format.h>

#include <algorithm>

#include "clientlib/ring/futex.h"
#include "clientlib/wire/words.h"
#include "server/exec/lanes.h"
#include "server/log/log.h"

namespace headrace::server::exec {
namespace {

/// A client that stays beyond max_lag for this long is worth a warning; brief stalls are not.
constexpr std::uint64_t kWorthAWarningNs = 5'000'000'000;

}  // namespace

std::optional<std::uint32_t> Lanes::foremost(const publish::Group* except) const {
  std::optional<std::uint32_t> found;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) && lanes_[lane].group != except &&
        (!found || ledger_.position(*found) < ledger_.position(lane)))
      found = lane;
  return found;
}

/// Where a client begins with Join::kNow: at this stream's foremost client, or if it has none, at that of the
/// streams that share rows.
std::optional<Cursor> Lanes::join_cursor() const {
  const auto first = foremost(nullptr);
  const auto position = first ? ledger_.position(*first) : maker_.foremost_in_other_streams();
  if (!position) return std::nullopt;
  // A batch of a group of w ranks covers w batches of samples: only positions are comparable between groups.
  if (info_.delivery == Delivery::kShard) return Cursor{position->epoch, position->position, 0};
  // Rounded down to a whole batch, so that all clients of this stream get the same batches.
  return first ? ledger_.next(*first) : Cursor{position->epoch, 0, position->position / info_.batch_size};
}

std::optional<std::uint32_t> Lanes::hindmost() const {
  std::optional<std::uint32_t> found;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) &&
        (!found || ledger_.next(lane) < ledger_.next(*found)))
      found = lane;
  return found;
}

std::optional<Cursor> Lanes::hindmost_next() const {
  const auto last = hindmost();
  return last ? std::optional(ledger_.next(*last)) : std::nullopt;
}

Result<void> Lanes::check(const wire::OpenRequest& request) const {
  if (status_.failed()) return fail(status_.failure());
  if (auto allowed = supply_.may_join(request, hindmost_next()); !allowed) return allowed;
  if (request.fingerprint)
    if (const auto changed = difference(info_.fingerprint, *request.fingerprint); !changed.empty())
      return fail(ErrorCode::kFingerprintMismatch,
                  fmt::format("stream `{}`: the {} changed since the checkpoint, or since this loop began; "
                              "restore it, or start without the state",
                              info_.name, changed));
  const wire::Batching batching{info_.batch_size, info_.last};
  if (request.batching && *request.batching != batching)
    return fail(ErrorCode::kFingerprintMismatch,
                fmt::format("stream `{}`: batches are of {} samples now (last: {}), this loop counts in "
                            "batches of {} (last: {}): create a new loader with this one's state, which "
                            "continues at the same sample",
                            info_.name, batching.batch_size, wire::word_of(batching.last),
                            request.batching->batch_size, wire::word_of(request.batching->last)));
  if (const publish::Member* holder = groups_.holder_of(request.client))
    return fail(ErrorCode::kClientNameTaken,
                fmt::format("client name `{}` on stream `{}` is held by pid {}: give each "
                            "client a name of its own (Loader(client=...))",
                            request.client, info_.name, holder->pid));
  // Check before any use: a client's positions are not trusted.
  for (const auto& cursor : {request.start, request.position})
    if (cursor && cursor->origin > info_.samples)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cursor {}: an epoch of stream `{}` has only {} samples", to_string(*cursor),
                              info_.name, info_.samples));
  return {};
}

std::uint32_t Lanes::used_count() const {
  return static_cast<std::uint32_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.used; }));
}

Result<wire::AttachReply> Lanes::open(const wire::OpenRequest& request) {
  if (auto allowed = check(request); !allowed) return fail(allowed.error());
  const auto free = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.used; });
  if (free == lanes_.end())
    return fail(
        ErrorCode::kRingFull,
        fmt::format("stream `{}` has {} client{}, the most that ring.max_clients allows; `headrace ls` "
                    "shows them. Raise it and restart the server",
                    info_.name, lanes_.size(), lanes_.size() == 1 ? "" : "s"));
  wire::OpenRequest wanted = request;
  if (supply_.builds_once()) {
    wanted.start.reset();
    wanted.join = Join::kNow;
  }
  auto admitted =
      groups_.admit(wanted, supply_.builds_once() ? supply_.oldest(hindmost_next()) : join_cursor());
  if (!admitted) return tl::make_unexpected(admitted.error());

  const auto index = static_cast<std::uint32_t>(free - lanes_.begin());
  const sampler::EpochPlan& plan = *admitted->group->plan;
  const Cursor begin = publish::normalized(plan, admitted->begin);
  // Everything that can throw comes before the lane is marked as used.
  Lane lane{.used = true,
            .group = admitted->group,
            .member = admitted->member,
            .group_name = request.group,
            .client = request.client,
            .rank = request.rank,
            .reattaches = request.position.has_value() && !supply_.builds_once(),
            .begin = begin};
  const publish::Member& former = *admitted->member;
  lane.consumed = lane.reattaches ? consumed_before(*admitted->group, former, begin) : begin;
  lane.resumes = lane.reattaches && (former.detached_ns == 0 || former.served);
  publish::Member member{.lane = index,
                         .client = request.client,
                         .pid = request.pid,
                         .granted = begin,
                         .consumed = lane.consumed,
                         .served = former.served};
  wire::AttachReply reply;
  reply.lane = index;
  reply.seek = ledger_.seek_number(index) + 1;  // opening the ledger's lane increments it
  reply.cursor = begin;
  reply.start = admitted->group->start;
  reply.length = plan.length(begin.origin);
  reply.epoch_length = plan.length(0);
  reply.max_leases = options_.ledger.max_leases;
  reply.batches_behind = report_late(lane, request);
  gate_->note_hold(options_.ledger.max_leases * plan.consumed(0, 1));
  ledger_.provide(used_count() + 1);
  *free = std::move(lane);
  *admitted->member = std::move(member);
  count_missing_ranks();
  // Else in attach(); here the lane must hold every batch from now on.
  if (supply_.builds_once()) open_ledger(index);
  return reply;
}

void Lanes::open_ledger(std::uint32_t index) {
  if (ledger_.is_open(index)) return;
  ledger_.open(index, lanes_[index].group->plan.get(), lanes_[index].begin);
  ++open_;
  changed(index);
}

ring::RingWriter::Attachment Lanes::attach(std::uint32_t index, ring::Segment lease, std::uint64_t now_ns) {
  Lane& lane = lanes_[index];
  StreamStatus::Client client{lane.client, lane.group_name, lane.rank, *lane.group->plan};
  open_ledger(index);
  status_.publish(index, {.next = ledger_.next(index)});
  auto attachment =
      status_.attach(index, std::move(client), [&] { return ring_.attach(index, std::move(lease)); });
  lane.attached = true;
  ++attached_;
  lane.last_beat_ns = now_ns;
  if (RowWindow* const window = maker_.window(); lane.begins_late && window != nullptr) {
    move_in_window(index);
    const publish::Position position = ledger_.position(index);
    if (const auto row = window->number(position.epoch, position.position)) window->begins_late(*row);
  }
  // A client that goes on after a restart of the server waits for nobody: its former peers may be gone.
  if (lane.resumes) gate_->open(options_.wait_for);
  count_clients(now_ns);
  if (!gate_->is_open(options_.wait_for) && gate_->total().asked < options_.wait_for)
    log::info(
        "stream `{}`: client `{}` attached; the stream begins when {} clients{} {} ({} so far; "
        "sharing.wait_for), or {:g} s after the first {} (sharing.wait_timeout)",
        info_.name, lane.client, options_.wait_for,
        gate_->stream_count() > 1 ? " (those of streams that share rows count as well)" : "",
        supply_.builds_once() ? "are attached" : "have called next()",
        supply_.builds_once() ? gate_->total().attached : gate_->total().asked,
        seconds(options_.wait_timeout), supply_.builds_once() ? "one" : "call");
  return attachment;
}

std::uint32_t Lanes::report_late(Lane& late, const wire::OpenRequest& request) const {
  if (supply_.builds_once() || late.reattaches) return 0;
  const sampler::EpochPlan& plan = *late.group->plan;
  const auto first = foremost(late.group);
  std::optional<publish::Position> ahead;
  std::uint32_t near = options_.ledger.max_lag;
  if (first) {
    ahead = ledger_.position(*first);
  } else if (!foremost(nullptr)) {  // as join_cursor(): the stream has no client
    ahead = maker_.foremost_in_other_streams();
    // A client there is granted several batches as soon as it attaches.
    near += static_cast<std::uint32_t>(gate_->largest_hold() / plan.consumed(0, 1)) + 1;
  }
  if (!ahead) return 0;
  const std::uint32_t lag = publish::lag(plan, late.begin, *ahead, ClientStatus::kMostLag);
  if (lag <= near) return 0;
  late.begins_late = !request.resume_server;
  late.reported_late = first.has_value();
  const publish::Position from = publish::position_of(plan, late.begin);
  const std::uint64_t samples = (ahead->epoch - from.epoch) * info_.samples + ahead->position - from.position;
  const bool chose = request.join != Join::kDefault || request.start || request.resume_server;
  // Most of the window's rows are between these two clients.
  const RowWindow* const window = maker_.window();
  const std::uint64_t kept = window == nullptr ? 0 : std::min(samples, window->kept());
  const char* const made = maker_.keeps_decoded() ? "made" : "decoded";
  log::log(chose ? log::Level::kInfo : log::Level::kWarning,
           "stream `{}`: client `{}` begins {}{} batches behind {}; {}{}", info_.name, late.client,
           lag >= ClientStatus::kMostLag ? "at least " : "", lag,
           first ? fmt::format("`{}`", lanes_[*first].client)
                 : "the foremost client of the streams that share its rows",
           kept == 0 ? fmt::format("the {} samples between them are {} again", samples, made)
                     : fmt::format(
                           "of the {} samples between them, up to {} are in the window (sharing.window), and "
                           "the others are {} again",
                           samples, kept, made),
           chose ? "" : "; to skip them, attach with Loader(join=\"now\")");
  return chose ? 0 : lag;
}

void Lanes::report_detachments(std::uint64_t now_ns) {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.sink) continue;
    if (!ledger_.is_detached(index)) {
      lane.detached_since_ns = 0;
      lane.reported_late = false;
      continue;
    }
    if (lane.detached_since_ns == 0) lane.detached_since_ns = now_ns;
    if (now_ns - lane.detached_since_ns < kWorthAWarningNs || lane.reported_late) continue;
    if (!std::exchange(lane.detachment_announced, true)) announce_detachment(lane);
  }
}

void Lanes::announce_detachment(const Lane& lane) const {
  std::string distance, ahead;
  for (const ClientStatus& client : status_.clients()) {
    if (client.lag == 0 && ahead.empty()) ahead = client.client;
    if (client.client != lane.client || client.group != lane.group_name) continue;
    distance =
        fmt::format("{}{} batches{}", client.lag >= ClientStatus::kMostLag ? "at least " : "", client.lag,
                    client.lag_seconds ? fmt::format(" ({:.1f} s)", *client.lag_seconds) : "");
  }
  const RowWindow* const window = maker_.window();
  log::warn(
      "stream `{}`: client `{}` is {} behind `{}`, and has been more than {} (max_lag) behind for {} s. Its "
      "batches are made for it alone: {}. To share again, set sharing.on_lag: wait{}, or attach it again "
      "with Loader(join=\"now\"), which skips samples. This is logged once for each client",
      info_.name, lane.client, distance, ahead, options_.ledger.max_lag, kWorthAWarningNs / 1'000'000'000,
      window == nullptr
          ? fmt::format("the samples between them are {} again", maker_.keeps_decoded() ? "made" : "decoded")
          : "samples that the window (sharing.window) no longer has are decoded again",
      window == nullptr ? "" : ", raise sharing.window");
}

Result<std::uint32_t> Lanes::open_sink() {
  wire::OpenRequest request;
  request.stream = info_.name;
  request.group = "(sink)";
  request.client = "(sink)";
  auto reply = open(request);
  if (!reply) return tl::make_unexpected(reply.error());
  Lane& lane = lanes_[reply->lane];
  open_ledger(reply->lane);
  status_.publish(reply->lane, {.next = lane.begin});
  status_.attach(reply->lane, {lane.client, lane.group_name, lane.rank, *lane.group->plan}, [] {});
  lane.sink = lane.attached = true;
  ++attached_;
  count_clients(ring::monotonic_ns());
  gate_->open(options_.wait_for);
  return reply->lane;
}

Cursor Lanes::consumed_by(std::uint32_t index) const {
  const Lane& lane = lanes_[index];
  const auto word = ring_.client_report(index);
  if (!word || !word->consumed || word->consumed->origin > info_.samples) return lane.consumed;
  const sampler::EpochPlan& plan = *lane.group->plan;
  const Cursor said = publish::normalized(plan, *word->consumed);
  // The client's own claim: never beyond what it was granted.
  return publish::position_of(plan, said) <= ledger_.position(index) ? said : ledger_.next(index);
}

Cursor Lanes::consumed_before(const publish::Group& group, const publish::Member& former,
                              const Cursor& next) {
  const auto position = [&](const Cursor& cursor) { return publish::position_of(*group.plan, cursor); };
  // Elsewhere its loop has sought, and what it had consumed before does not count.
  const bool goes_on = former.detached_ns != 0 && position(former.consumed) <= position(next) &&
                       position(next) <= position(former.granted);
  return goes_on ? former.consumed : next;
}

bool Lanes::close(std::uint32_t index, std::uint64_t now_ns) {
  Lane& lane = lanes_[index];
  if (!lane.used) return false;
  if (lane.attached) lane.member->granted = ledger_.next(index);
  if (lane.attached && !lane.sink) lane.member->consumed = consumed_by(index);
  lane.member->lane.reset();
  lane.member->detached_ns = now_ns;
  lane.member->served = lane.member->served || lane.granted > 0;
  publish::Position last;
  if (ledger_.is_open(index)) {
    last = ledger_.position(index);
    leases_reclaimed_ += ledger_.close(index);
    forget_order(index);
    move_in_window(index);
    --open_;
    free_slots();
  }
  if (lane.attached) {
    --attached_;
    status_.detach(index, last, [&] {
      if (!lane.sink) ring_.detach(index);
    });
  }
  lane = Lane{};
  count_missing_ranks();
  count_clients(now_ns);
  return true;
}

std::optional<Error> Lanes::failure_of(std::uint32_t index) const {
  if (status_.failed()) return status_.failure();
  // While the server drains, nobody gets the batches before the end any more.
  if (supply_.exhausted(ledger_.next(index)) || (draining_ && supply_.ended_early()))
    return supply_.end_error();
  return std::nullopt;
}

Result<void> Lanes::may_seek(std::uint32_t index) const {
  if (auto why = failure_of(index)) return fail(std::move(*why));
  return supply_.may_seek();
}

wire::CursorSetReply Lanes::seek(std::uint32_t index, const Cursor& cursor) {
  const auto reply = move(index, cursor);
  lanes_[index].begin = lanes_[index].consumed = reply.cursor;
  return reply;
}

wire::CursorSetReply Lanes::move(std::uint32_t index, const Cursor& cursor) {
  const Lane& lane = lanes_[index];
  wire::CursorSetReply reply;
  reply.seek = ledger_.seek(index, cursor);
  forget_order(index);
  free_slots();
  changed(index);
  reply.cursor = ledger_.next(index);
  reply.length = lane.group->plan->length(reply.cursor.origin);
  reply.epoch_length = lane.group->plan->length(0);
  return reply;
}

void Lanes::count_missing_ranks() {
  missing_ranks_ = 0;
  for (const auto& [name, group] : groups_.all()) {
    if (!group.anyone_attached()) continue;
    missing_ranks_ += group.world_size;
    for (const auto& [rank, member] : group.members) missing_ranks_ -= member.lane.has_value();
  }
}

Result<wire::CursorGetReply> Lanes::cursors(const std::string& name) const {
  if (status_.failed()) return fail(status_.failure());
  const auto found = groups_.all().find(name);
  if (found == groups_.all().end()) {
    std::string names;
    for (const auto& [known, group] : groups_.all()) names += (names.empty() ? "" : ", ") + known;
    return fail(ErrorCode::kInvalidArgument, fmt::format("stream `{}` has no group `{}`; there are: {}",
                                                         info_.name, name, names.empty() ? "none" : names));
  }
  wire::CursorGetReply reply;
  reply.world_size = found->second.world_size;
  reply.start = found->second.start;
  for (const auto& [rank, member] : found->second.members) {
    const bool attached = member.lane && lanes_[*member.lane].attached;
    reply.lanes.push_back({.rank = rank,
                           .client = member.client,
                           .attached = attached,
                           .granted = attached ? ledger_.next(*member.lane) : member.granted,
                           .consumed = attached ? consumed_by(*member.lane) : member.consumed});
  }
  return reply;
}

}  // namespace headrace::server::exec
