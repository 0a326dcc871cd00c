// Shows the progress of a long verb on stderr: a bar on a terminal, otherwise a line every few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headrace::server::verbs {

/// Thread safety: one thread at a time.
class Progress {
 public:
  /// `begin`: samples that an earlier run completed. `total`: 0 if unknown.
  Progress(std::string what, std::uint64_t begin, std::uint64_t total);
  /// Clears the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap: prints only now and then. `bytes`: since this object was created; 0: they are not counted.
  void update(std::uint64_t done, std::uint64_t bytes = 0);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const std::uint64_t begin_, total_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

}  // namespace headrace::server::verbs
