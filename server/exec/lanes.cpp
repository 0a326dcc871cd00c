#include "server/exec/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "server/log/log.h"

namespace headrace::server::exec {
namespace {

/// Only clients that get every batch can share rows, and only `detach` lets one be far behind another.
std::uint64_t patience_of(const Lanes::Options& options) {
  const bool apart = options.ledger.broadcast && options.ledger.detach;
  return apart ? static_cast<std::uint64_t>(options.patience.count()) : 0;
}

bool sends_acks(const Lane& lane) {
  return lane.attached && !lane.sink && lane.protocol_error.empty();
}

}  // namespace

Lanes::Lanes(const StreamInfo& info, const Options& options, ring::RingWriter& ring, Supply& supply,
             StreamStatus& status, const SampleMaker& maker, std::shared_ptr<StartGate> gate)
    : info_(info),
      options_(options),
      ring_(ring),
      supply_(supply),
      status_(status),
      maker_(maker),
      ledger_(options.ledger),
      fill_order_(ledger_, {.epoch_rows = info.samples, .patience_ns = patience_of(options)}),
      groups_(info.delivery, info.samples, info.batch_size, info.last),
      lanes_(options.ledger.lanes),
      gate_(std::move(gate)),
      gate_index_(gate_->add_stream(options.wait_for)) {
  // Reserved here, so that pushes under the lock cannot throw.
  const std::size_t slots = publish::Ledger::slots_needed(options.ledger);
  orders_.reserve(slots);
  freed_.reserve(slots);
  acks_.reserve(ring::kGrantRing);
  if (const auto end = supply_.end()) ledger_.set_end(*end);
}

double Lanes::fullness() const {
  // A lane that yields has an empty ring, which is no reason to serve this stream before others, unless the
  // lane behind has enough.
  bool yields = false;
  for (std::uint64_t awaited = fill_order_.awaited(); awaited != 0; awaited &= awaited - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(awaited));
    yields |= ledger_.is_open(lane) && !lanes_[lane].fenced && ledger_.ahead(lane) < ledger_.quota();
  }
  const std::uint64_t waiting = yields ? fill_order_.waiting() : 0;
  double least = 2;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !lanes_[lane].fenced && (waiting >> lane & 1) == 0)
      least = std::min(least, static_cast<double>(ledger_.ahead(lane)) / ledger_.quota());
  return least;
}

std::uint64_t Lanes::starved() const {
  std::uint64_t starved = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (!ledger_.is_open(lane) || lanes_[lane].fenced) continue;
    const std::uint32_t ahead = ledger_.ahead(lane);
    // A loop may hold its last batch while it waits for the next one, as in Python.
    if (ahead == 0 || (ahead == ledger_.leases(lane) && ring_.client_waits(lane)))
      starved |= std::uint64_t{1} << lane;
  }
  return starved;
}

void Lanes::update_order(std::uint64_t now_ns) {
  if (open_ < 2 || !fill_order_.lets_yield()) return fill_order_.pause();
  const RowWindow* const window = maker_.window();
  const std::uint64_t waited = fill_order_.waiting();
  fill_order_.update(now_ns,
                     window != nullptr ? publish::FillOrder::Window{window->needed(), window->room()}
                                       : publish::FillOrder::Window{},
                     starved());
  ledger_.favor(fill_order_.awaited());
  changed_ |= waited ^ fill_order_.waiting();
  report_waits(fill_order_.waiting() & ~waited);
}

void Lanes::forget_order(std::uint32_t lane) {
  changed_ |= fill_order_.waiting();
  fill_order_.forget(lane);
  ledger_.favor(0);
}

std::uint64_t Lanes::kept_lanes() const {
  const RowWindow* const window = maker_.window();
  if (open_ < 2 || window == nullptr || window->empty()) return 0;
  std::uint64_t kept = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (!ledger_.is_open(lane) || lanes_[lane].fenced) continue;
    const auto next = ledger_.first_missing(lane);
    if (!next) continue;
    const sampler::BatchRows rows =
        lanes_[lane].group->plan->rows(next->origin, next->batch, lanes_[lane].rank);
    const auto row = window->number(next->epoch, rows.first);
    if (row && window->has(*row)) kept |= std::uint64_t{1} << lane;
  }
  return kept;
}

std::optional<publish::Ledger::Fill> Lanes::take_fill(bool& freed) {
  for (const std::uint32_t lane : fill_order_.lanes(kept_lanes())) {
    const auto fill = ledger_.take_fill(lane);
    freed |= free_slots();  // slots freed for this lane, for example from other lanes' prefetch
    if (!fill) continue;
    const auto& cursor = fill->key.cursor;
    fill_order_.count(lane,
                      lanes_[lane].group->plan->rows(cursor.origin, cursor.batch, lanes_[lane].rank).rows);
    return fill;
  }
  return std::nullopt;
}

void Lanes::report_waits(std::uint64_t lanes) {
  if (lanes == 0) return;  // the usual case, on every pass of a worker
  std::string behind;
  for (std::uint64_t awaited = fill_order_.awaited(); awaited != 0; awaited &= awaited - 1)
    behind += fmt::format("{}`{}`", behind.empty() ? "" : ", ", lanes_[std::countr_zero(awaited)].client);
  for (; lanes != 0; lanes &= lanes - 1) {
    Lane& lane = lanes_[std::countr_zero(lanes)];
    if (!std::exchange(lane.wait_announced, true))
      log::info(
          "stream `{}`: client `{}` yields the workers to {}, so that they share rows sooner; at most {:g} s "
          "(sharing.patience)",
          info_.name, lane.client, behind, seconds(options_.patience));
  }
}

std::optional<RowWindow::Lanes> Lanes::others_need(const publish::Ledger::Fill& fill,
                                                   const sampler::BatchRows& rows, bool or_may) const {
  const RowWindow* const window = maker_.window();
  if (window == nullptr) return std::nullopt;
  RowWindow::Lanes served{maker_.window_stream(), ledger_.served_by(fill)};
  if (info_.delivery == Delivery::kShard)  // ranks of a group have no rows in common
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
      if (lanes_[lane].group == lanes_[fill.lane].group) served.lanes |= std::uint64_t{1} << lane;
  // Others may need only the last rows: those that were passed are dropped soon.
  const auto last = window->number(fill.key.cursor.epoch, rows.first + rows.rows - 1);
  if (!last) return std::nullopt;
  if (!window->needed_by_others(*last, served) && !(or_may && window->may_be_needed(*last)))
    return std::nullopt;
  return served;
}

void Lanes::move_in_window(std::uint32_t lane) const {
  RowWindow* const window = maker_.window();
  if (window == nullptr) return;
  std::optional<std::uint64_t> next;
  if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) && !status_.failed() && !draining_) {
    const publish::Position position = ledger_.position(lane);
    next = window->number(position.epoch, position.position);
  }
  window->move(maker_.window_stream(), lane, next);
}

bool Lanes::has_acks() const {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (sends_acks(lanes_[index]) && ring_.has_acks(index)) return true;
  return false;
}

bool Lanes::take_acks() {
  bool taken_any = false;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!sends_acks(lane) || !ring_.has_acks(index)) continue;
    lane.asked = true;  // it may have got its first batch without sleeping
    acks_.clear();
    const auto taken = ring_.take_acks(index, acks_);
    if (!taken) lane.protocol_error = taken.error().message;
    for (const ring::TakenAck& ack : acks_) {
      if (ack.slot < ring_.slot_count() && ring_.generation(ack.slot) == ack.generation &&
          ledger_.ack(index, ack.slot))
        continue;
      lane.protocol_error =
          fmt::format("ack of slot {} generation {}, on which it has no lease", ack.slot, ack.generation);
    }
    changed(index);
    taken_any = true;
  }
  free_slots();
  return taken_any;
}

bool Lanes::write_grants(std::uint64_t now_ns) {
  orders_.clear();
  if (draining_ || (supply_.builds_once() && expects_client()) || !try_open_gate(now_ns)) return false;
  ledger_.take_grants(orders_);
  for (const auto& order : orders_) {
    changed(order.lane);
    Lane& lane = lanes_[order.lane];
    const std::uint64_t samples =
        lane.group->plan->rows(order.batch.origin, order.batch.batch, lane.rank).valid;
    granted_ += samples;
    lane.granted += samples;
    if (lane.first_grant_ns == 0) lane.first_grant_ns = now_ns;
    if (lane.sink) {
      ledger_.ack(order.lane, order.slot);
    } else if (ring_.write_grant(order.lane, order.slot, order.seek)) {
      to_wake_ |= std::uint64_t{1} << order.lane;
    }
  }
  free_slots();
  return !orders_.empty();
}

void Lanes::announce_failure() {
  const bool failed = status_.failed();
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.sink || lane.failure_announced) continue;
    if (!failed && !supply_.exhausted(ledger_.next(index))) continue;
    lane.failure_announced = true;
    move_in_window(index);
    ring_.set_lane_state(index, ring::kLaneFailed);
  }
}

bool Lanes::free_slots() {
  freed_.clear();
  ledger_.take_freed(freed_);
  for (const std::uint32_t slot : freed_) ring_.release(slot);
  return !freed_.empty();
}

bool Lanes::has_asked(std::uint32_t index) const {
  // A feed's batches are built once, and none before its clients are attached: so they need not ask.
  if (lanes_[index].sink || supply_.builds_once()) return true;
  const auto word = ring_.client_report(index);
  return word && (word->waiting || word->wait_ns > 0);
}

void Lanes::count_clients(std::uint64_t now_ns) {
  StartGate::Clients clients;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.fenced) continue;
    if (!lane.asked && has_asked(index)) {
      lane.asked = true;
      changed(index);
    }
    ++clients.attached;
    clients.asked += lane.asked ? 1 : 0;
  }
  gate_->set_clients(gate_index_, clients);
  // A feed is sent once, so it has one set of clients.
  if (gate_->total().attached == 0 && !supply_.builds_once()) gate_->close();
  if (clients.asked == 0) {
    first_ask_ns_ = 0;
  } else if (first_ask_ns_ == 0) {
    first_ask_ns_ = now_ns;
  }
}

bool Lanes::try_open_gate(std::uint64_t now_ns) {
  if (gate_->is_open_for_all()) return true;
  // An open stream counts its clients, too: others may wait for them.
  const StartGate::Clients& own = gate_->clients(gate_index_);
  if (own.asked < own.attached) count_clients(now_ns);
  if (gate_->is_open(options_.wait_for)) return true;
  const std::uint32_t asked = gate_->total().asked;
  // If the feeder failed, clients that wait for others get the error at once. If it has sent everything,
  // waiting still makes sense: every client yet to come gets the batches.
  const bool complete = asked >= options_.wait_for || supply_.ended_early();
  const auto waited = std::chrono::nanoseconds(now_ns - first_ask_ns_);
  if (!complete && (own.asked == 0 || waited <= options_.wait_timeout)) return false;
  gate_->open(options_.wait_for);
  std::string which = fmt::format("stream `{}` begins", info_.name);
  if (gate_->stream_count() > 1)
    which =
        fmt::format("stream `{}`, and those that share rows with it and whose wait_for is at most {}, begin",
                    info_.name, options_.wait_for);
  if (asked >= options_.wait_for) {
    log::info("{} with {} clients", which, asked);
  } else if (!supply_.ended_early()) {
    log::warn("{} without {} of {} clients, which did not call next() within {:g} s (sharing.wait_timeout)",
              which, options_.wait_for - asked, options_.wait_for, seconds(options_.wait_timeout));
  }
  return true;
}

std::uint32_t Lanes::awaited_clients() const {
  if (gate_->is_open(options_.wait_for)) return 0;
  // Clients that are all fenced do not wait: they were served before, and go on at once after they reattach.
  if (attached_ > 0 && gate_->clients(gate_index_).attached == 0) return 0;
  return options_.wait_for - std::min(options_.wait_for, gate_->total().asked);
}

bool Lanes::expects_client() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.used && !lane.attached; });
}

bool Lanes::all_served() const {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (ledger_.is_open(lane) && !ledger_.is_fenced(lane) &&
        (!supply_.exhausted(ledger_.next(lane)) || ledger_.leases(lane) > 0))
      return false;
  return true;
}

void Lanes::drain() {
  draining_ = true;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    const Lane& lane = lanes_[index];
    // A client is to report a failure, or a feed that has ended, not to wait for another server.
    if (lane.attached && !lane.sink && !lane.failure_announced)
      ring_.set_lane_state(index, supply_.ended_early() ? ring::kLaneFailed : ring::kLaneDraining);
    move_in_window(index);
  }
}

bool Lanes::drained() const {
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (lanes_[index].attached && !lanes_[index].fenced && ledger_.leases(index) > 0) return false;
  return true;
}

std::vector<std::pair<std::uint32_t, std::string>> Lanes::protocol_errors() const {
  std::vector<std::pair<std::uint32_t, std::string>> errors;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index)
    if (!lanes_[index].protocol_error.empty()) errors.emplace_back(index, lanes_[index].protocol_error);
  return errors;
}

std::vector<std::uint32_t> Lanes::fence_stuck(std::uint64_t now_ns, std::uint64_t evict_after_ns) {
  std::vector<std::uint32_t> fenced;
  for (std::uint32_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (!lane.attached || lane.sink || lane.fenced) continue;
    const auto word = ring_.client_report(index);
    if (word && word->heartbeat_ns != lane.last_beat_value) {
      lane.last_beat_value = word->heartbeat_ns;
      lane.last_beat_ns = now_ns;
    } else if (now_ns - lane.last_beat_ns > evict_after_ns) {
      lane.fenced = true;
      ledger_.fence(index);
      count_clients(now_ns);
      forget_order(index);
      free_slots();
      ring_.set_lane_state(index, ring::kLaneFenced);
      changed(index);
      fenced.push_back(index);
    }
  }
  return fenced;
}

void Lanes::publish(StreamFigures& figures) {
  for (; changed_ != 0; changed_ &= changed_ - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(changed_));
    move_in_window(lane);
    status_.publish(lane, {.next = ledger_.next(lane),
                           .leases = ledger_.leases(lane),
                           .fenced = lanes_[lane].fenced,
                           .granted = lanes_[lane].granted,
                           .first_grant_ns = lanes_[lane].first_grant_ns,
                           .asked = lanes_[lane].asked,
                           .waits = fill_order_.waiting() >> lane & 1});
  }
  const publish::Ledger::Counts& slots = ledger_.counts();
  figures.free = slots.free;
  figures.filling = slots.filling;
  figures.ready = slots.ready;
  figures.leased = slots.leased;
  figures.detachments = ledger_.detachments();
  figures.leases_reclaimed = leases_reclaimed_;
  figures.checksum_mismatches = checksum_mismatches_;
  figures.granted = granted_;
  figures.awaited_clients = awaited_clients();
  const bool awaits = figures.awaited_clients > 0 && first_ask_ns_ != 0;
  figures.begins_at_ns =
      awaits ? first_ask_ns_ + static_cast<std::uint64_t>(options_.wait_timeout.count()) : 0;
  figures.missing_ranks = missing_ranks_;
}

}  // namespace headrace::server::exec
