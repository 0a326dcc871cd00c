// A job of a simulation: the ranks of a group, which save a checkpoint now and then, and are restarted from
// it, perhaps with another world size. It checks that each position of an epoch is delivered exactly once
// relative to its checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/property/simulation/rank.h"

namespace headrace::testing {

class Job {
 public:
  Job(Site& site, std::size_t stream, std::string name, std::uint32_t most_ranks);

  /// A random part of what it does.
  void step();
  /// One of its ranks is killed, stopped or hostile, or all of them are killed.
  void suffer();
  /// Moves on to its newest possible checkpoint.
  void save();
  /// All ranks release everything and close.
  void leave();

  [[nodiscard]] std::vector<std::unique_ptr<Rank>>& ranks() { return ranks_; }
  [[nodiscard]] std::size_t stream() const { return stream_; }

 private:
  void restart();
  void start_ranks(std::uint32_t world, const Cursor& start, Rank::Begin begin);
  void resume_one(Rank& rank);
  void seek();
  void adopt(const Cursor& start);
  void cover(const Rank::Used& batch);
  void finish_epoch();  ///< of the checkpoint
  void cover_up_to(const Cursor& cursor);
  [[nodiscard]] Cursor used_by_all() const;
  /// Another rank keeps the group alive on this server.
  [[nodiscard]] bool others_live(const Rank& rank) const;
  void kill_all();
  [[nodiscard]] bool may_resume(const Rank& rank) const;
  /// All ranks begin where the server remembers the hindmost one. False: it does not remember all.
  bool resume_all();

  Site& site_;
  const std::size_t stream_;
  const std::string name_;
  const std::uint32_t most_ranks_;
  std::shared_ptr<const EpochPlan> plan_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Cursor checkpoint_;
  std::map<std::uint64_t, std::vector<std::uint8_t>> covered_;  ///< per epoch: how often each position was
  std::uint64_t resumed_on_ = 0;                                ///< the server whose memory ranks resume from
  bool restarts_ = true;                                        ///< all ranks are dead, or there are none yet
};

}  // namespace headrace::testing
