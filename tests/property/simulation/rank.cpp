#include "tests/property/simulation/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "server/publish/position.h"

namespace headrace::testing {
namespace {

constexpr std::uint64_t kLongestSleepNs = 100'000'000;

}  // namespace

Cursor Rank::after(Cursor cursor) const {
  ++cursor.batch;
  return server::publish::normalized(*it_.plan, cursor);
}

void Rank::begin_with(Begin begin, const Cursor& start) {
  begin_ = begin;
  if (begin == Begin::kPosition) return;
  start_ = start;
  next_ = used_ = server::publish::normalized(*it_.plan, start);
  unused_.clear();
  dead_ = false;
}

void Rank::step() {
  if (stopped() || dead_) return;
  switch (state_) {
    case State::kDown:
      return open();
    case State::kOpened:
      return attach();
    case State::kAttached:
      break;
  }
  if (hostile_) return be_hostile();
  const std::uint64_t what = site_.chance.pick(100);
  if (what < 45) {
    poll();
  } else if (what < 70) {
    use();
  } else if (what < 95) {
    if (!held_.empty() && (!hoards_ || site_.chance.one_in(12))) release(site_.chance.pick(held_.size()));
  } else {
    peek();
  }
}

void Rank::open() {
  Record& record = site_.record;
  wire::OpenRequest request;
  request.stream = site_.shape.streams[it_.stream].name;
  request.group = it_.group;
  request.client = it_.client;
  request.rank = it_.rank;
  request.world_size = it_.world;
  request.pid = 1;
  if (begin_ == Begin::kPosition) {
    request.position = next_;
    request.start = start_;
  } else if (begin_ == Begin::kResume) {
    request.resume_server = true;
  } else if (begin_ == Begin::kNow) {
    request.join = Join::kNow;
  } else {
    request.start = start_;
  }
  auto opened = site_.server->open(request, it_.stream, site_.now_ns);
  if (!opened) {
    using enum ErrorCode;
    constexpr std::array kExpected{kRankTaken,   kClientNameTaken, kGroupMismatch, kRingFull,
                                   kTransientIo, kStreamFailed,    kDraining};
    const bool expected =
        std::find(kExpected.begin(), kExpected.end(), opened.error().code) != kExpected.end();
    if (!expected) record.broken(opened.error().to_string());
    ++record.tally.refused;
    return;
  }
  const wire::AttachReply& reply = opened->first;
  connection_ = opened->second;
  state_ = State::kOpened;
  // A restarted server learns what was used when the client commits.
  if (std::exchange(server_, site_.server->number()) != server_) known_ = false;
  seek_ = reply.seek;
  const Cursor wanted = begin_ == Begin::kPosition || begin_ == Begin::kStart || begin_ == Begin::kResume
                            ? next_
                            : reply.cursor;
  record.note(61, reply.cursor.epoch, reply.cursor.origin, reply.cursor.batch);
  if (reply.cursor != wanted)
    record.broken(
        fmt::format("{}: begins at {}, expected {}", it_.client, to_string(reply.cursor), to_string(wanted)));
  start_ = reply.start;
  if (begin_ != Begin::kNow) return;
  next_ = used_ = reply.cursor;
  begin_ = Begin::kStart;
}

void Rank::attach() {
  if (connection_->server_closed) return lose();
  const bool memory = !site_.chance.one_in(40);
  auto reader = site_.server->attach(*connection_, memory, site_.now_ns);
  if (!reader) {
    const bool refused = reader.error().code == ErrorCode::kNotEnoughMemory;
    const bool late =
        reader.error().code == ErrorCode::kTokenInvalid && connection_->expires_ns < site_.now_ns;
    if (refused ? memory : !late) site_.record.broken(reader.error().to_string());
    if (refused) site_.record.fault(Fault::kNoMemory);
    return lose();
  }
  reader_ = std::move(*reader);
  state_ = State::kAttached;
  asleep_ = false;
  begin_ = Begin::kPosition;
  reader_->commit(used_);
  known_ = true;
}

void Rank::lose() {
  connection_.reset();
  reader_.reset();
  state_ = State::kDown;
  asleep_ = hostile_ = fenced_ = must_be_dropped_ = false;
}

bool Rank::usable() const {
  return state_ == State::kAttached && !stopped() && !dead_ && !hostile_ && !connection_->server_closed &&
         reader_->lane_state() == ring::kLaneOpen;
}

std::size_t Rank::held_now() const {
  return static_cast<std::size_t>(
      std::count_if(held_.begin(), held_.end(), [&](const Held& view) { return view.reader == reader_; }));
}

bool Rank::sleeps() {
  if (!asleep_) return false;
  if (!site_.server->take_wake(*connection_) && site_.now_ns < asleep_since_ns_ + kLongestSleepNs)
    return true;
  reader_->lease().waiting.store(0);
  asleep_ = false;
  return false;
}

void Rank::poll() {
  // It may still read what it was granted before it notices that its server is gone.
  if (connection_->server_closed && site_.chance.one_in(2)) return lose();
  const bool gone = connection_->server_closed;
  if (!gone && sleeps()) return;
  const std::uint32_t most = site_.shape.streams[it_.stream].ledger.max_leases;
  const auto grant = reader_->next(seek_, {}, {}, nullptr);
  if (grant) {
    take(*grant);
    site_.record.check(held_now() <= most, "more leases than max_leases");
    return;
  }
  if (gone) return;
  const std::uint32_t state = reader_->lane_state();
  if ((state & ring::kLaneFenced) != 0) {
    if (!std::exchange(fenced_, true)) site_.record.fault(Fault::kFenced);
    // Its views stay unchanged until it releases them; it attaches again when it has.
    if (const auto view = std::find_if(held_.begin(), held_.end(),
                                       [&](const Held& held) { return held.reader == reader_; });
        view != held_.end())
      return release(static_cast<std::size_t>(view - held_.begin()));
    connection_->close(false);
    return lose();
  }
  if (state != ring::kLaneOpen) return;
  reader_->lease().waiting.store(1);
  asleep_ = true;
  asleep_since_ns_ = site_.now_ns;
}

void Rank::take(const ring::Grant& grant) {
  const BatchRows rows = it_.plan->rows(next_.origin, next_.batch, it_.rank);
  site_.record.note(62, it_.stream, it_.rank, grant.epoch, grant.batch, grant.slot, grant.generation);
  ++site_.record.tally.batches;
  if (grant.epoch != next_.epoch || grant.batch != next_.batch)
    return site_.record.broken(fmt::format("{}: granted epoch {}, batch {}; expected {}", it_.client,
                                           grant.epoch, grant.batch, to_string(next_)));
  check_content(grant, rows);
  held_.push_back({reader_, grant, digest_of(*reader_, grant), next_});
  unused_.push_back({next_, rows});
  next_ = after(next_);
}

void Rank::check_content(const ring::Grant& grant, const BatchRows& rows) const {
  const ring::SlotDesc& slot = reader_->slot(grant.slot);
  Record& record = site_.record;
  if (slot.rows != rows.rows || slot.valid_rows != rows.valid || slot.position != rows.first ||
      slot.epoch != grant.epoch)
    return record.broken(fmt::format("{}: {} has {} rows, {} of them valid, from {}; expected {}, {}, {}",
                                     it_.client, to_string(next_), slot.rows, slot.valid_rows, slot.position,
                                     rows.rows, rows.valid, rows.first));
  const ring::RowDesc* const descs = reader_->rows(grant.slot);
  const std::size_t width = site_.rows.width();
  for (std::uint32_t i = 0; i < rows.rows; ++i) {
    const auto& expected = site_.rows.at(grant.epoch, (rows.first + i) % site_.rows.samples());
    const std::uint32_t flags =
        (i < rows.valid ? ring::kRowValid : 0U) | (expected.replaced ? ring::kRowReplaced : 0U);
    const bool right = descs[i].sample_index == expected.sample && descs[i].flags == flags &&
                       site_.rows.equals(expected.sample, reader_->values(grant.slot, 0) + i * width,
                                         reader_->values(grant.slot, 1) + i * width,
                                         reader_->values(grant.slot, 2) + i * sizeof(std::int64_t));
    if (!right)
      return record.broken(fmt::format("{}: row {} of {} is wrong", it_.client, i, to_string(next_)));
    record.tally.replaced += expected.replaced ? 1 : 0;
    ++record.tally.rows;
  }
}

std::uint64_t Rank::digest_of(const ring::RingReader& reader, const ring::Grant& grant) {
  std::uint64_t digest = 0xCBF29CE484222325ULL;
  const auto add = [&](const void* from, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(from);
    std::uint64_t word = 0;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
      std::memcpy(&word, at, sizeof word);
      digest = (digest ^ word) * 0x100000001B3ULL;
    }
    for (; bytes > 0; ++at, --bytes)
      digest = (digest ^ std::to_integer<std::uint64_t>(*at)) * 0x100000001B3ULL;
  };
  const ring::SlotDesc& slot = reader.slot(grant.slot);
  const std::uint32_t rows = slot.rows;
  for (const std::uint64_t word :
       {slot.epoch, slot.batch, slot.position, slot.publish_ns, slot.payload_bytes})
    add(&word, sizeof word);
  for (std::size_t field = 0; field < reader.fields().size(); ++field)
    add(reader.values(grant.slot, field), rows * row_bytes(reader.fields()[field]));
  add(reader.rows(grant.slot), rows * sizeof(ring::RowDesc));
  return digest;
}

void Rank::check_view(const Held& view) const {
  ++site_.record.tally.views;
  if (digest_of(*view.reader, view.grant) != view.digest)
    site_.record.broken(fmt::format("{}: a view of {} in slot {} changed while it was held", it_.client,
                                    to_string(view.at), view.grant.slot));
}

void Rank::peek() {
  for (const Held& view : held_) check_view(view);
}

void Rank::release(std::size_t which) {
  check_view(held_[which]);
  site_.record.note(63, held_[which].grant.slot);
  held_[which].reader->ack(held_[which].grant);
  held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Rank::use() {
  if (unused_.empty()) return;
  const Used batch = unused_.front();
  unused_.pop_front();
  log_.push_back(batch);
  used_ = after(batch.at);
  for (Held& view : held_)
    if (view.at == batch.at) view.used = true;
  // The client library commits the batch after the last one, also at an epoch's end.
  reader_->commit(Cursor{batch.at.epoch, batch.at.origin, batch.at.batch + 1});
}

bool Rank::may_seek() const {
  return !stopped() && !dead_ && !hostile_ && state_ != State::kOpened &&
         (state_ == State::kDown || connection_->server_closed || usable());
}

void Rank::seek(const Cursor& cursor) {
  unused_.clear();
  log_.clear();
  next_ = used_ = server::publish::normalized(*it_.plan, cursor);
  known_ = false;
  if (state_ == State::kDown) return;
  if (connection_->server_closed) return lose();
  const auto reply = site_.server->seek(*connection_, cursor);
  if (!reply) {
    site_.record.check(site_.server->engine().stream(it_.stream).failed(), "a seek is refused");
    connection_->close(false);
    return lose();
  }
  site_.record.check(reply->cursor == next_, "a seek goes elsewhere");
  seek_ = reply->seek;
  reader_->commit(next_);
  known_ = true;
}

void Rank::kill() {
  Record& record = site_.record;
  const bool used = std::any_of(held_.begin(), held_.end(), [](const Held& view) { return view.used; });
  if (state_ != State::kDown || !held_.empty())
    record.fault(state_ == State::kOpened ? Fault::kKilledOpening
                 : used                   ? Fault::kKilledAfterCopy
                 : !held_.empty()         ? Fault::kKilledHolding
                                          : Fault::kKilledIdle);
  for (const Held& view : held_)
    if (connection_ && view.reader == reader_ && !hostile_)
      connection_->ghosts.emplace_back(view.reader, view.grant);
  if (connection_) connection_->close(true);
  if (hostile_) known_ = false;
  held_.clear();
  unused_.clear();
  stopped_until_ns_ = 0;
  lose();
  dead_ = true;
}

void Rank::leave() {
  if (dead_) return;
  while (!held_.empty()) release(site_.chance.pick(held_.size()));
  if (connection_) connection_->close(false);
  lose();
}

void Rank::turn_hostile() {
  hostile_ = true;
  connection_->hostile = true;
  site_.record.fault(Fault::kGarbage);
  be_hostile();
}

void Rank::be_hostile() {
  Chance& chance = site_.chance;
  ring::LeaseBlock& lease = reader_->lease();
  const std::uint64_t what = chance.pick(6), acked = lease.acked.load();
  site_.record.note(64, what);
  ring::Ack& ack = lease.acks[acked % ring::kGrantRing];
  switch (what) {
    case 0:
      lease.acked.store(static_cast<std::uint32_t>(acked + 65 + chance.pick(1'000'000)));
      must_be_dropped_ = true;
      break;
    case 1:
      ack = {.generation = ~chance.pick(1'000), .slot = chance.between(0, 20), .reserved = 7};
      lease.acked.store(static_cast<std::uint32_t>(acked + 1));
      must_be_dropped_ = true;
      break;
    case 2:
      for (ring::ConsumedCursor& cursor : lease.consumed) {
        cursor.epoch.store(chance.one_in(3) ? ~std::uint64_t{0} : chance.pick(4));
        cursor.origin.store(chance.pick(100));
        cursor.batch.store(chance.one_in(3) ? ~std::uint64_t{0} : chance.pick(1 << 20));
      }
      lease.commits.store(chance.pick(100));
      break;
    case 3:
      lease.heartbeat_ns.store(chance.pick(~std::uint64_t{0}));
      lease.waiting.store(static_cast<std::uint32_t>(chance.pick(3)));
      lease.wait_ns.store(chance.pick(~std::uint64_t{0}));
      break;
    case 4: {
      auto* const bytes = reinterpret_cast<std::uint8_t*>(&lease);
      for (std::size_t i = 0; i < sizeof lease; i += 1 + chance.pick(9))
        bytes[i] = static_cast<std::uint8_t>(chance.pick(256));
      must_be_dropped_ = false;  // this may have taken back acks that the server has not read
      break;
    }
    default:  // a batch that it holds, twice or too early
      if (held_.empty()) return;
      ack = {.generation = held_.front().grant.generation, .slot = held_.front().grant.slot, .reserved = 0};
      lease.acked.store(static_cast<std::uint32_t>(acked + 1));
  }
}

void Rank::beat() {
  if (reader_ && !stopped() && !dead_ && !hostile_) reader_->lease().heartbeat_ns.store(site_.now_ns);
}

bool Rank::hungry() const {
  return usable() && held_now() < site_.shape.streams[it_.stream].ledger.max_leases;
}

void Rank::check_slots() const {
  const auto holds = [](const ring::RingReader& reader, const ring::Grant& grant) {
    return reader.slot(grant.slot).word.load() == ring::slot_word(grant.generation, ring::SlotState::kReady);
  };
  if (hostile_) return;
  if (!connected()) return;
  for (const Held& view : held_)
    if (view.reader == reader_ && !holds(*view.reader, view.grant))
      site_.record.broken(fmt::format("{}: slot {} was freed although it holds {}", it_.client,
                                      view.grant.slot, to_string(view.at)));
}

void Rank::check_wakes() {
  if (!asleep_ || !usable() || reader_->ready(seek_) == 0) return;
  const bool woken = site_.server->take_wake(*connection_);
  if (!woken) site_.record.broken(it_.client + ": was granted a batch while it slept, and nobody woke it");
  reader_->lease().waiting.store(0);
  asleep_ = false;
}

}  // namespace headrace::testing
