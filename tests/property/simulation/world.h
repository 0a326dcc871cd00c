// A simulation: a server, its jobs, and the scheduler that decides from a seed which of them acts next, and
// what goes wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/property/simulation/job.h"

namespace headrace::testing {

/// Streams, clients and sizes: also chosen by the seed.
Shape choose_shape(Chance& chance);
std::string to_string(const Shape& shape);

class World {
 public:
  explicit World(Record& record);

  void run(std::uint64_t steps);
  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  void step();
  /// One event of those that other threads and processes cause at any time, also while a row is made.
  void event();
  void disturb();  ///< in the middle of a row
  void fault();
  void restart_server();
  void look_after_clients();
  /// Lets the workers rest and every client take what it can, then checks that none starves.
  void settle();
  void settle_once();
  void check_hunger(const Rank& rank);
  [[nodiscard]] bool has_to_wait(const Rank& rank) const;
  void check_all();
  void finish();
  [[nodiscard]] bool healthy() const;  ///< no stream has failed, and the server does not drain
  template <class F>
  void each_rank(F&& what) {
    for (auto& job : jobs_)
      for (auto& rank : job->ranks()) what(*rank);
  }

  Record& record_;
  Chance chance_;
  const Shape shape_;
  SimulatedRows rows_;
  Site site_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::uint64_t servers_ = 0;
  int depth_ = 0;  ///< of events in the middle of rows
};

}  // namespace headrace::testing
