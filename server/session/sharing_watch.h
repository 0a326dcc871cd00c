// Notices jobs that could share rows but do not: each row is decoded again for another one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/exec/engine.h"
#include "server/session/share_rows.h"

namespace headrace::server::session {

class SharingWatch {
 public:
  /// A client of a broadcast stream, or the ranks of a group: each row is meant for it once.
  struct Job {
    std::string name;
    std::uint64_t received = 0;  ///< samples, so far
    std::uint32_t behind = 0;    ///< batches behind the foremost client of its stream
  };
  struct Figures {
    std::uint64_t decoded = 0;  ///< samples, so far, by all streams that share
    std::uint64_t refused = 0;  ///< rows that the window had no room for, so far
    std::uint64_t window_bytes = 0;
    std::vector<Job> jobs;  ///< that are attached
  };

  /// `streams`: that share a window, for messages.
  explicit SharingWatch(const std::vector<std::string>& streams);

  /// Compares the figures with those of 30 s ago. A warning, if since then the same jobs were attached, at
  /// least two of them received samples, and half as many samples again were decoded as any of them received;
  /// once, until that has ended.
  std::optional<std::string> look(std::uint64_t now_ns, const Figures& figures);

 private:
  std::string streams_;
  std::uint64_t since_ns_ = 0, decoded_ = 0, refused_ = 0;
  std::map<std::string, std::uint64_t> received_, last_;  ///< then, and at the last look
  bool warned_ = false;
};

/// The present figures of a group's streams.
SharingWatch::Figures sharing_figures(const exec::Engine& engine, const SharingGroup& group);

}  // namespace headrace::server::session
