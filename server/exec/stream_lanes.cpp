// Stream: who attaches, seeks, is fenced, goes.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "clientlib/wire/words.h"
#include "server/exec/stream.h"

namespace headrace::server::exec {
std::optional<std::uint32_t> Stream::foremost_lane() const {
  std::optional<std::uint32_t> foremost;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && (!foremost || ledger_.place(*foremost) < ledger_.place(lane)))
      foremost = lane;
  return foremost;
}

publish::Place Stream::foremost() const {
  const auto lane = foremost_lane();
  return lane ? ledger_.place(*lane) : last_place_;
}

/// Where a client that joins the foremost one begins.
std::optional<Cursor> Stream::meeting_point() const {
  const auto lane = foremost_lane();
  if (!lane) return std::nullopt;
  // A batch of a group of w ranks is w batches of samples: other groups understand positions alone.
  if (setup_.info.delivery == Delivery::kShard)
    return Cursor{ledger_.place(*lane).epoch, ledger_.place(*lane).position, 0};
  return ledger_.next(*lane);
}

Result<wire::OpenReply> Stream::open(const wire::OpenRequest& request) {
  if (failed()) return fail(failure());
  if (auto allowed = live() ? may_join(request) : Result<void>(); !allowed) return fail(allowed.error());
  if (request.fingerprint)
    if (const auto changed = difference(setup_.info.fingerprint, *request.fingerprint); !changed.empty())
      return fail(ErrorCode::kFingerprintMismatch,
                  fmt::format("stream `{}`: the {} changed since the checkpoint, or since this loop began; "
                              "restore it, or start without the state",
                              setup_.info.name, changed));
  const wire::Batching batching{setup_.info.batch_size, setup_.info.last};
  if (request.batching && *request.batching != batching)
    return fail(ErrorCode::kFingerprintMismatch,
                fmt::format("stream `{}`: batches are of {} samples now (last: {}), this loop counts in "
                            "batches of {} (last: {}): make a new loader and give it this one's state, which "
                            "goes on at the same sample",
                            setup_.info.name, batching.batch_size, wire::word_of(batching.last),
                            request.batching->batch_size, wire::word_of(request.batching->last)));
  if (const publish::Member* holder = groups_.holder_of(request.client))
    return fail(ErrorCode::kClientNameTaken,
                fmt::format("client name `{}` on stream `{}` is held by pid {}: give each "
                            "client a name of its own",
                            request.client, setup_.info.name, holder->pid));
  // Before anything reckons with them: what a client says of positions is not to be believed.
  for (const auto& cursor : {request.start, request.position})
    if (cursor && cursor->origin > setup_.info.samples)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cursor {}: an epoch of stream `{}` has only {} samples", to_string(*cursor),
                              setup_.info.name, setup_.info.samples));
  const auto free = std::find_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.used; });
  if (free == lanes_.end())
    return fail(ErrorCode::kRingFull,
                fmt::format("all {} lanes of stream `{}` are taken: raise ring.max_clients", lanes_.size(),
                            setup_.info.name));
  wire::OpenRequest wanted = request;
  if (live()) {
    wanted.start.reset();
    wanted.join = Join::kNow;
  }
  auto admitted = groups_.admit(wanted, live() ? oldest_batch() : meeting_point());
  if (!admitted) return tl::make_unexpected(admitted.error());

  const auto index = static_cast<std::uint32_t>(free - lanes_.begin());
  const sampler::EpochPlan& plan = *admitted->group->plan;
  const Cursor begin = publish::normalised(plan, admitted->begin);
  // Whatever can throw comes before the lane is taken.
  Lane lane{.used = true,
            .group = admitted->group,
            .member = admitted->member,
            .group_name = request.group,
            .client = request.client,
            .rank = request.rank,
            .comes_back = request.position.has_value() && !live(),
            .begin = begin};
  publish::Member member{
      .lane = index, .client = request.client, .pid = request.pid, .granted = begin, .consumed = begin};
  wire::OpenReply reply;
  reply.stream = setup_.info;
  reply.lane = index;
  reply.seek = ledger_.seek_number(index) + 1;  // opening the ledger's lane takes the next one
  reply.cursor = begin;
  reply.start = admitted->group->start;
  reply.length = plan.length(begin.origin);
  reply.epoch_length = plan.length(0);
  reply.max_leases = setup_.ledger.max_leases;
  *free = std::move(lane);
  *admitted->member = std::move(member);
  if (live()) ledger_.open(index, &plan, begin);  // else in attach(): here it holds what it was promised
  return reply;
}

ring::RingWriter::Attachment Stream::attach(std::uint32_t index, ring::Segment lease, std::uint64_t now_ns) {
  auto attachment = ring_->attach(index, std::move(lease));
  Lane& lane = lanes_[index];
  lane.attached = true;
  if (!ledger_.is_open(index)) ledger_.open(index, lane.group->plan.get(), lane.begin);
  lane.last_beat_ns = now_ns;
  if (!first_attach_ns_) first_attach_ns_ = now_ns;
  // Who was here before the server was restarted goes on at once: those that it began with may be gone.
  gate_passed_ |= lane.comes_back;
  if (const std::uint32_t awaited = awaited_clients(); awaited > 0)
    spdlog::info("stream `{}` waits for {} more client{} (sharing.wait_for), {} s at most", setup_.info.name,
                 awaited, awaited == 1 ? "" : "s",
                 std::chrono::duration_cast<std::chrono::seconds>(setup_.wait_timeout).count());
  return attachment;
}

Result<std::uint32_t> Stream::open_sink() {
  wire::OpenRequest request;
  request.stream = setup_.info.name;
  request.group = "(sink)";
  request.client = "(sink)";
  auto reply = open(request);
  if (!reply) return tl::make_unexpected(reply.error());
  Lane& lane = lanes_[reply->lane];
  lane.sink = lane.attached = true;
  if (!ledger_.is_open(reply->lane)) ledger_.open(reply->lane, lane.group->plan.get(), lane.begin);
  gate_passed_ = true;
  return reply->lane;
}

Cursor Stream::consumed_by(std::uint32_t index) const {
  const Lane& lane = lanes_[index];
  const auto word = ring_->client_word(index);
  if (!word || !word->consumed || word->consumed->origin > setup_.info.samples) return lane.begin;
  const sampler::EpochPlan& plan = *lane.group->plan;
  const Cursor said = publish::normalised(plan, *word->consumed);
  // A client's own statement: never beyond what it was granted.
  return publish::place_of(plan, said) <= ledger_.place(index) ? said : ledger_.next(index);
}

void Stream::close(std::uint32_t index, std::uint64_t now_ns) {
  Lane& lane = lanes_[index];
  if (!lane.used) return;
  if (lane.attached) lane.member->granted = ledger_.next(index);
  if (lane.attached && !lane.sink) lane.member->consumed = consumed_by(index);
  if (ledger_.is_open(index)) last_place_ = ledger_.place(index);
  lane.member->lane.reset();
  lane.member->detached_ns = now_ns;
  if (ledger_.is_open(index)) {
    leases_reclaimed_ += ledger_.close(index);
    free_slots();
  }
  if (lane.attached && !lane.sink) ring_->detach(index);
  lane = Lane{};
  forget_reads();
}

wire::CursorSetReply Stream::seek(std::uint32_t index, const Cursor& cursor) {
  Lane& lane = lanes_[index];
  wire::CursorSetReply reply;
  reply.seek = ledger_.seek(index, cursor);
  free_slots();
  forget_reads();
  reply.cursor = lane.begin = ledger_.next(index);
  reply.length = lane.group->plan->length(reply.cursor.origin);
  reply.epoch_length = lane.group->plan->length(0);
  return reply;
}

std::vector<std::pair<std::uint32_t, std::string>> Stream::offenders() const {
  std::vector<std::pair<std::uint32_t, std::string>> offenders;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (!lanes_[index].offence.empty()) offenders.emplace_back(index, lanes_[index].offence);
  return offenders;
}

std::vector<std::uint32_t> Stream::fence_stuck(std::uint64_t now_ns, std::uint64_t evict_after_ns) {
  std::vector<std::uint32_t> fenced;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.sink || lane.fenced) continue;
    const auto word = ring_->client_word(index);
    if (word && word->heartbeat_ns != lane.last_beat_value) {
      lane.last_beat_value = word->heartbeat_ns;
      lane.last_beat_ns = now_ns;
    } else if (now_ns - lane.last_beat_ns > evict_after_ns) {
      lane.fenced = true;
      ledger_.fence(index);
      free_slots();
      ring_->set_lane_state(index, ring::kLaneFenced);
      fenced.push_back(index);
    }
  }
  if (!fenced.empty()) forget_reads();
  return fenced;
}

void Stream::drain() {
  draining_ = true;
  if (auto* const reads = maker().read_ahead()) reads->clear();
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (lanes_[index].attached && !lanes_[index].sink) ring_->set_lane_state(index, ring::kLaneDraining);
}

bool Stream::drained() const {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (lanes_[index].attached && !lanes_[index].fenced && ledger_.leases(index) > 0) return false;
  return true;
}

void Stream::beat(std::uint64_t now_ns, std::uint64_t grace_ns) {
  ring_->beat();
  if (now_ns > grace_ns) groups_.forget(now_ns - grace_ns);
}

Result<wire::CursorGetReply> Stream::cursors(const std::string& name) const {
  if (failed()) return fail(failure());
  const auto found = groups_.all().find(name);
  if (found == groups_.all().end()) {
    std::string names;
    for (const auto& [known, group] : groups_.all()) names += (names.empty() ? "" : ", ") + known;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}` has no group `{}`; there are: {}", setup_.info.name, name,
                            names.empty() ? "none" : names));
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

std::vector<std::pair<std::uint32_t, std::uint32_t>> Stream::missing_ranks() const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> missing;
  for (const auto& [name, group] : groups_.all()) {
    if (!group.anyone_attached()) continue;
    std::uint32_t attached = 0;
    for (const auto& [rank, member] : group.members) attached += member.lane.has_value();
    missing.emplace_back(group.world_size - attached, group.world_size);
  }
  return missing;
}

}  // namespace headrace::server::exec
