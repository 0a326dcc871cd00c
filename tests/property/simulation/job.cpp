#include "tests/property/simulation/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/publish/position.h"

namespace headrace::testing {
namespace {

using server::publish::normalized;
using server::publish::position_of;

}  // namespace

Job::Job(Site& site, std::size_t stream, std::string name, std::uint32_t most_ranks)
    : site_(site), stream_(stream), name_(std::move(name)), most_ranks_(most_ranks) {
  restart();
}

void Job::step() {
  if (restarts_) return restart();
  Rank& rank = *ranks_[site_.chance.pick(ranks_.size())];
  if (rank.dead()) return resume_one(rank);
  if (rank.hostile() && rank.lost()) return kill_all();  // the server has dropped it
  if (rank.state() == Rank::State::kOpened && site_.chance.one_in(12))
    return ranks_.size() > 1 ? rank.kill() : kill_all();
  const std::uint64_t what = site_.chance.pick(1000);
  if (what < 25) return save();
  if (what < 30) return seek();
  if (rank.begin() == Rank::Begin::kResume && rank.state() == Rank::State::kDown && !may_resume(rank))
    return kill_all();
  const bool joins = rank.begin() == Rank::Begin::kNow;
  const bool founds =
      rank.begin() == Rank::Begin::kStart && rank.state() == Rank::State::kDown && !others_live(rank);
  rank.step();
  if (founds && rank.state() == Rank::State::kOpened)  // a group anew, without the memory of the former one
    for (auto& each : ranks_) each->forget();
  if (joins && rank.begin() != Rank::Begin::kNow) adopt(rank.start());
}

void Job::adopt(const Cursor& start) {
  checkpoint_ = normalized(*plan_, start);
  cover_up_to(checkpoint_);
  for (auto& rank : ranks_)
    if (rank->begin() == Rank::Begin::kNow) rank->begin_with(Rank::Begin::kStart, start);
}

void Job::cover_up_to(const Cursor& cursor) {
  covered_.clear();
  auto& positions = covered_[cursor.epoch];
  positions.assign(site_.shape.samples, 0);
  std::fill_n(positions.begin(), position_of(*plan_, cursor).position, 1);
}

Cursor Job::used_by_all() const {
  Cursor least = ranks_.front()->used();
  for (const auto& rank : ranks_)
    if (position_of(*plan_, rank->used()) < position_of(*plan_, least)) least = rank->used();
  return least;
}

void Job::save() {
  if (std::any_of(ranks_.begin(), ranks_.end(),
                  [](const auto& rank) { return rank->begin() == Rank::Begin::kNow || rank->hostile(); }))
    return;
  const Cursor reached = used_by_all();
  std::vector<Rank::Used> used;
  for (auto& rank : ranks_) {
    auto& log = rank->log();
    while (!log.empty() && position_of(*plan_, log.front().at) < position_of(*plan_, reached)) {
      used.push_back(log.front());
      log.pop_front();
    }
  }
  std::sort(used.begin(), used.end(), [&](const Rank::Used& a, const Rank::Used& b) {
    return position_of(*plan_, a.at) < position_of(*plan_, b.at);
  });
  for (const Rank::Used& batch : used) {
    while (checkpoint_.epoch < batch.at.epoch) finish_epoch();
    cover(batch);
  }
  while (checkpoint_.epoch < reached.epoch) finish_epoch();
  checkpoint_ = reached;
  const auto& positions = covered_[reached.epoch];
  const std::uint64_t until = position_of(*plan_, reached).position;
  if (static_cast<std::uint64_t>(std::count(positions.begin(), positions.end(), 1)) != until)
    site_.record.broken(fmt::format("{}: a position before {} was not delivered", name_, to_string(reached)));
  site_.record.note(70, reached.epoch, reached.origin, reached.batch);
}

void Job::cover(const Rank::Used& batch) {
  auto& positions = covered_[batch.at.epoch];
  positions.resize(site_.shape.samples);
  for (std::uint64_t i = batch.rows.first; i < batch.rows.first + batch.rows.valid; ++i)
    if (positions[i]++ != 0)
      site_.record.broken(
          fmt::format("{}: position {} of epoch {} was delivered twice", name_, i, batch.at.epoch));
}

void Job::finish_epoch() {
  const Cursor from = checkpoint_;
  const auto& positions = covered_[from.epoch];
  const std::uint64_t all = plan_->consumed(from.origin, plan_->length(from.origin));
  if (static_cast<std::uint64_t>(std::count(positions.begin(), positions.end(), 1)) != all)
    site_.record.broken(fmt::format("{}: epoch {} has positions that were not delivered", name_, from.epoch));
  covered_.erase(from.epoch);
  ++site_.record.tally.epochs;
  checkpoint_ = {from.epoch + 1, 0, 0};
}

void Job::seek() {
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
        return rank->may_seek() && rank->begin() == Rank::Begin::kPosition;
      }))
    return;
  ++site_.record.tally.seeks;
  Chance& chance = site_.chance;
  Cursor to{checkpoint_.epoch + chance.pick(2), 0, 0};
  if (chance.one_in(2)) to.batch = chance.pick(plan_->length(0));
  if (chance.one_in(4)) to = {to.epoch, chance.pick(site_.shape.samples), 0};
  to = normalized(*plan_, to);
  site_.record.note(71, to.epoch, to.origin, to.batch);
  for (auto& rank : ranks_) rank->seek(to);
  checkpoint_ = to;
  cover_up_to(to);
}

void Job::suffer() {
  if (restarts_) return;
  Chance& chance = site_.chance;
  Rank& rank = *ranks_[chance.pick(ranks_.size())];
  if (rank.dead()) return;
  const std::uint64_t what = chance.pick(100);
  site_.record.note(72, what);
  if (what < 40) {
    if (rank.stopped()) return;
    const bool long_enough = chance.one_in(2);
    rank.stop(site_.now_ns + (long_enough ? Door::kEvictNs * 2 : 1 + chance.pick(Door::kEvictNs / 2)));
    site_.record.fault(Fault::kStopped);
  } else if (what < 50) {
    if (rank.state() == Rank::State::kAttached && !rank.lost() && !rank.stopped() && !rank.hostile())
      rank.turn_hostile();
  } else if (what < 75 && ranks_.size() > 1 && !rank.hostile()) {
    rank.kill();
  } else {
    kill_all();
  }
}

bool Job::others_live(const Rank& rank) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& other) {
    return other.get() != &rank && other->connected() && !other->hostile();
  });
}

void Job::resume_one(Rank& rank) {
  // The server remembers a rank that was attached while another one keeps the group alive.
  if (!rank.remembered() || !others_live(rank)) return kill_all();
  if (site_.chance.one_in(2)) return;
  rank.begin_with(Rank::Begin::kResume, rank.used());
  resumed_on_ = site_.server->number();
  ++site_.record.tally.restarts;
}

bool Job::may_resume(const Rank& rank) const {
  if (resumed_on_ != site_.server->number()) return false;  // the memory ended with the server
  const bool all = std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& each) {
    return each->begin() == Rank::Begin::kResume && each->used() == rank.used();
  });
  // Without the others, the server resumes the whole group at its hindmost rank.
  return all || others_live(rank);
}

bool Job::resume_all() {
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->remembered(); }))
    return false;
  for (const auto& connection : site_.server->connections())
    for (const auto& rank : ranks_)
      if (connection->client == rank->identity().client) return false;  // the group is alive
  const Cursor least = used_by_all();
  for (auto& rank : ranks_) {
    auto& log = rank->log();
    while (!log.empty() && position_of(*plan_, log.back().at) >= position_of(*plan_, least)) log.pop_back();
    rank->begin_with(Rank::Begin::kResume, least);
  }
  resumed_on_ = site_.server->number();
  ++site_.record.tally.restarts;
  site_.record.note(74, least.epoch, least.origin, least.batch);
  return true;
}

void Job::kill_all() {
  for (auto& rank : ranks_)
    if (!rank->dead()) rank->kill();
  restarts_ = true;
}

void Job::restart() {
  Chance& chance = site_.chance;
  const auto world = static_cast<std::uint32_t>(ranks_.size());
  restarts_ = false;
  if (world != 0 && chance.one_in(3) && resume_all()) return;
  const std::uint64_t how = chance.pick(10);
  const std::uint32_t next = chance.between(1, most_ranks_);
  if (next != world) {
    if (world != 0) ++site_.record.tally.resized;
    Cursor start = checkpoint_;
    if (plan_) start = {checkpoint_.epoch, position_of(*plan_, checkpoint_).position, 0};
    if (start.origin == site_.shape.samples) start = {start.epoch + 1, 0, 0};
    start_ranks(next, start, how == 0 && world == 0 ? Rank::Begin::kNow : Rank::Begin::kStart);
  } else {
    start_ranks(world, checkpoint_, Rank::Begin::kStart);
  }
}

void Job::start_ranks(std::uint32_t world, const Cursor& start, Rank::Begin begin) {
  const StreamShape& shape = site_.shape.streams[stream_];
  ++site_.record.tally.restarts;
  site_.record.note(73, world, start.epoch, start.origin, start.batch);
  plan_ = std::make_shared<EpochPlan>(site_.shape.samples, shape.batch, world, shape.last);
  const Cursor first = normalized(*plan_, start);
  // With `drop`, the rest of an epoch may be too small for a batch of another world size.
  if (first.epoch != checkpoint_.epoch) covered_.erase(checkpoint_.epoch);
  checkpoint_ = first;
  ranks_.clear();
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(
        site_, Rank::Identity{stream_, name_, fmt::format("{}-{}", name_, rank), rank, world, plan_}));
    ranks_.back()->begin_with(begin, first);
  }
}

void Job::leave() {
  for (auto& rank : ranks_) rank->leave();
}

}  // namespace headrace::testing
