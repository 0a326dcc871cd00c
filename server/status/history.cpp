#include "server/status/history.h"

#include <utility>

namespace headrace::server::status {
namespace {

constexpr std::uint64_t kSpacingNs = 5'000'000'000;
constexpr std::uint64_t kMinuteNs = 60'000'000'000;

}  // namespace

History::History(std::uint64_t now_ns, nlohmann::json stats) {
  add(now_ns, std::move(stats));
}

bool History::is_due(std::uint64_t now_ns) const {
  const std::scoped_lock lock(mutex_);
  return now_ns >= entries_.back()->time_ns + kSpacingNs;
}

void History::add(std::uint64_t now_ns, nlohmann::json stats) {
  auto entry = std::make_shared<const Entry>(now_ns, std::move(stats));
  const std::scoped_lock lock(mutex_);
  entries_.push_back(std::move(entry));
  while (entries_.size() > 1 && entries_[1]->time_ns + kMinuteNs <= now_ns) entries_.erase(entries_.begin());
}

History::Entries History::entries() const {
  const std::scoped_lock lock(mutex_);
  return entries_;
}

}  // namespace headrace::server::status
