#include "server/publish/groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/publish/ledger.h"

namespace headrace::server::publish {

bool Group::anyone_attached() const {
  return std::any_of(members.begin(), members.end(),
                     [](const auto& entry) { return entry.second.lane.has_value(); });
}

Cursor Group::consumed_by_all() const {
  if (members.size() < world_size) return start;
  const auto hindmost =
      std::min_element(members.begin(), members.end(), [this](const auto& a, const auto& b) {
        return position_of(*plan, a.second.consumed) < position_of(*plan, b.second.consumed);
      });
  return hindmost->second.consumed;
}

std::uint64_t Group::last_seen_ns() const {
  std::uint64_t last = 0;
  for (const auto& [rank, member] : members) last = std::max(last, member.detached_ns);
  return last;
}

Result<Groups::Admission> Groups::admit(const wire::OpenRequest& request,
                                        const std::optional<Cursor>& foremost) {
  const std::string& name = request.group;
  if (request.world_size == 0 || request.rank >= request.world_size)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of world size {}: ranks go from 0 to world size - 1", request.rank,
                            request.world_size));
  if (delivery_ == Delivery::kBroadcast && request.world_size != 1)
    return fail(
        ErrorCode::kGroupMismatch,
        fmt::format(
            "world size {} on the broadcast stream `{}`, where every client gets every batch: attach with "
            "world size 1, or set the stream's `delivery: shard` to divide the epoch among ranks",
            request.world_size, request.stream));

  auto found = groups_.find(name);
  const bool live = found != groups_.end() && found->second.anyone_attached();

  const Cursor origin = foremost.value_or(Cursor{});
  const bool same_size = found != groups_.end() && found->second.world_size == request.world_size;
  const bool resumes = same_size && request.resume_server && !live;
  // Ranks that were killed were not all at the same batch; all resume at the hindmost rank's cursor.
  Cursor start = resumes
                     ? found->second.consumed_by_all()
                     : request.start.value_or(request.join == Join::kNow          ? origin
                                              : request.join == Join::kEpochStart ? Cursor{origin.epoch, 0, 0}
                                                                                  : Cursor{});
  if (live) {
    const Group& group = found->second;
    if (group.world_size != request.world_size)
      return fail(ErrorCode::kGroupMismatch,
                  fmt::format("group `{}` has world size {}, rank {} has {}: start all ranks with the same",
                              name, group.world_size, request.rank, request.world_size));
    // A client that reattaches within its process keeps its position, so it need not agree with the group.
    const bool names_start = !request.position && (request.start || request.join == Join::kDefault);
    if (names_start && !request.resume_server && group.start != start)
      return fail(
          ErrorCode::kGroupMismatch,
          fmt::format(
              "group `{}` started from {}, rank {} wants to start from {}: load the same checkpoint on "
              "all ranks",
              name, to_string(group.start), request.rank, to_string(start)));
    start = group.start;
    if (const auto member = group.members.find(request.rank);
        member != group.members.end() && member->second.lane)
      return fail(
          ErrorCode::kRankTaken,
          fmt::format("rank {} of group `{}` on stream `{}` is held by `{}` (pid {}): give each process "
                      "of a job its own rank (RANK), and each job its own group",
                      request.rank, name, request.stream, member->second.client, member->second.pid));
  }

  auto plan = std::make_unique<sampler::EpochPlan>(samples_, batch_size_, request.world_size, last_);
  if (plan->length(0) == 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}`: {}", request.stream,
                            sampler::no_batch(samples_, batch_size_, request.world_size)));
  // A client that reattaches after it was fenced does not end its job, even if no other rank is attached.
  const bool same_job = same_size && request.position;
  if (!live && !same_job) {
    Group group;
    group.world_size = request.world_size;
    group.start = start;
    group.plan = std::move(plan);
    found = groups_.insert_or_assign(name, std::move(group)).first;
  }
  Group& group = found->second;
  Member& member = group.members[request.rank];
  Cursor begin =
      request.position.value_or(request.resume_server && member.detached_ns ? member.consumed : group.start);
  return Admission{&group, &member, begin};
}

const Member* Groups::holder_of(const std::string& client) const {
  for (const auto& [name, group] : groups_)
    for (const auto& [rank, member] : group.members)
      if (member.lane && member.client == client) return &member;
  return nullptr;
}

void Groups::forget(std::uint64_t before_ns) {
  std::erase_if(groups_, [&](const auto& entry) {
    return !entry.second.anyone_attached() && entry.second.last_seen_ns() < before_ns;
  });
}

}  // namespace headrace::server::publish
