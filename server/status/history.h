// The server's figures of the last minute, from which rates are computed.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

namespace headrace::server::status {

class History {
 public:
  struct Entry {
    std::uint64_t time_ns = 0;
    nlohmann::json stats;
  };

  /// `stats`: the first entry.
  History(std::uint64_t now_ns, nlohmann::json stats);

  /// Whether it is time for the next entry: every 5 s.
  [[nodiscard]] bool is_due(std::uint64_t now_ns) const;
  void add(std::uint64_t now_ns, nlohmann::json stats);
  using Entries = std::vector<std::shared_ptr<const Entry>>;
  /// Those of the last minute, oldest first; never empty.
  [[nodiscard]] Entries entries() const;

 private:
  mutable std::mutex mutex_;
  Entries entries_;
};

}  // namespace headrace::server::status
