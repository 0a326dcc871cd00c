// A trainer process of a simulation: it attaches, takes batches, uses them in order, releases them in any
// order, and may be killed, stopped or hostile at any point. It checks all that it gets.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/base/epoch_plan.h"
#include "tests/property/simulation/server.h"

namespace headrace::testing {

/// What the parts of a simulation have in common.
struct Site {
  Record& record;
  Chance& chance;
  SimulatedRows& rows;
  const Shape& shape;
  std::uint64_t now_ns = 1'000'000'000;
  std::unique_ptr<SimulatedServer> server = nullptr;
};

class Rank {
 public:
  struct Identity {
    std::size_t stream;
    std::string group, client;
    std::uint32_t rank, world;
    std::shared_ptr<const EpochPlan> plan;
  };
  /// How the next open() begins.
  enum class Begin : std::uint8_t {
    kStart,     ///< at the job's checkpoint
    kPosition,  ///< goes on in its process
    kResume,    ///< at the server's memory of what it has used
    kNow,       ///< where the others are
  };
  enum class State : std::uint8_t { kDown, kOpened, kAttached };
  /// A batch that was used since the job's checkpoint.
  struct Used {
    Cursor at;
    BatchRows rows;
  };

  Rank(Site& site, Identity identity)
      : site_(site), it_(std::move(identity)), hoards_(site.chance.one_in(6)) {}

  /// A random part of its loop.
  void step();
  void open();
  void attach();
  void poll();
  /// Checks a view that it holds.
  void peek();
  void release(std::size_t which);

  // --- faults
  void kill();  ///< its process ends, with all views
  void stop(std::uint64_t until_ns) { stopped_until_ns_ = until_ns; }
  /// Its segment contains garbage from now on.
  void turn_hostile();
  void leave();  ///< releases everything and closes the stream

  // --- for its job
  /// A new process, or the same one, opens as `begin` says.
  void begin_with(Begin begin, const Cursor& start);
  [[nodiscard]] const Cursor& start() const { return start_; }  ///< of its group
  /// set_epoch(): false: not now.
  [[nodiscard]] bool may_seek() const;
  void seek(const Cursor& cursor);
  [[nodiscard]] const Cursor& used() const { return used_; }  ///< the batch after the last one that it used
  std::deque<Used>& log() { return log_; }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Begin begin() const { return begin_; }
  [[nodiscard]] bool stopped() const { return stopped_until_ns_ > site_.now_ns; }
  [[nodiscard]] bool hostile() const { return hostile_; }
  /// Its segment has an ack that no honest client writes.
  [[nodiscard]] bool must_be_dropped() const { return must_be_dropped_; }
  [[nodiscard]] bool dead() const { return dead_; }
  /// Sees that its server is gone or has closed the connection.
  [[nodiscard]] bool lost() const { return connection_ && connection_->server_closed; }
  [[nodiscard]] bool connected() const { return connection_ && !connection_->server_closed; }
  void forget() { known_ = false; }  ///< its server knows nothing of it any more
  /// The server remembers what it has used.
  [[nodiscard]] bool remembered() const {
    return known_ && begin_ == Begin::kPosition && server_ == site_.server->number();
  }
  [[nodiscard]] const Identity& identity() const { return it_; }

  // --- for checks
  /// The heartbeat of its own thread.
  void beat();
  /// It lacks a batch, and may have one more lease.
  [[nodiscard]] bool hungry() const;
  [[nodiscard]] std::size_t held_now() const;  ///< leases on the ring that it is attached to
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  [[nodiscard]] bool usable() const;  ///< attached, running, neither fenced nor failed nor drained
  void check_slots() const;
  /// It sleeps although it has a grant, and nobody woke it.
  void check_wakes();
  [[nodiscard]] const Cursor& next() const { return next_; }

 private:
  struct Held {
    std::shared_ptr<ring::RingReader> reader;
    ring::Grant grant;
    std::uint64_t digest = 0;
    Cursor at;
    bool used = false;
  };
  void take(const ring::Grant& grant);
  void check_content(const ring::Grant& grant, const BatchRows& rows) const;
  void use();  ///< the oldest batch that it has not used
  [[nodiscard]] static std::uint64_t digest_of(const ring::RingReader& reader, const ring::Grant& grant);
  void check_view(const Held& view) const;
  void lose();
  [[nodiscard]] bool sleeps();
  [[nodiscard]] Cursor after(Cursor cursor) const;
  void be_hostile();

  Site& site_;
  const Identity it_;
  const bool hoards_;  ///< keeps its views for long
  State state_ = State::kDown;
  Begin begin_ = Begin::kStart;
  Cursor start_;  ///< of the group
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<ring::RingReader> reader_;
  std::uint64_t server_ = 0;
  std::uint32_t seek_ = 0;
  Cursor next_, used_;
  std::deque<Used> unused_;  ///< taken, not used
  std::deque<Used> log_;
  std::vector<Held> held_;
  std::uint64_t stopped_until_ns_ = 0, asleep_since_ns_ = 0;
  bool hostile_ = false, must_be_dropped_ = false, fenced_ = false, asleep_ = false, dead_ = false;
  bool known_ = false;  ///< its server knows what it has used
};

}  // namespace headrace::testing
