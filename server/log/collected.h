// The warnings and errors that are logged while an object lives, for a program's own report.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace headrace::server::log {

/// Lines still go to the log's sink as well. REQUIRES: no other thread logs while it is created or destroyed,
/// and set_sink() is not called while it lives.
class Collected {
 public:
  Collected();
  ~Collected();
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;

  /// Those since the last call, oldest first. Thread safety: any thread.
  [[nodiscard]] std::vector<std::string> take();

 private:
  class Lines;
  std::shared_ptr<Lines> lines_;
};

}  // namespace headrace::server::log
