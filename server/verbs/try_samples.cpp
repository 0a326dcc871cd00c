#include "server/verbs/try_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "server/exec/sample_maker.h"
#include "server/verbs/progress.h"

namespace headrace::server::verbs {
namespace {

constexpr std::uint64_t kFew = 32;

class Trial {
 public:
  Trial(const exec::SampleMaker& maker, std::uint64_t tried) : maker_(maker), tried_(tried) {}

  /// For any number of threads.
  void work() {
    exec::RowScratch scratch;
    exec::LooseRow row(maker_);
    while (const auto position = next()) {
      auto made = maker_.show(0, *position, row.fields, scratch);
      const std::lock_guard lock(mutex_);
      ++done_;
      if (!made && made.error().code != ErrorCode::kTooManyBadSamples &&
          made.error().code != ErrorCode::kBadSample) {
        failure_ = made.error();
      } else if (!made || made->replaced) {
        add_bad(*position, made ? made->because : made.error().message);
      }
      changed_.notify_all();
    }
  }

  /// Waits until all samples were tried.
  Result<TriedSamples> wait(const std::string& stream, bool shown) {
    std::optional<Progress> progress;
    if (shown) progress.emplace("check " + stream, 0, tried_);
    std::unique_lock lock(mutex_);
    while (done_ < tried_ && !failure_) {
      changed_.wait(lock);
      if (progress) progress->update(done_);
    }
    if (failure_) return fail(*failure_);
    TriedSamples out{tried_, bad_, distinct_.size(), {}};
    for (auto& [position, because] : first_) out.first.push_back(std::move(because));
    return out;
  }

 private:
  std::optional<std::uint64_t> next() {
    const std::lock_guard lock(mutex_);
    if (begun_ == tried_ || failure_) return std::nullopt;
    return begun_++ * maker_.size() / tried_;
  }

  /// Keeps the texts of those that come first in the epoch only: a whole dataset may be bad.
  void add_bad(std::uint64_t position, std::string because) {
    ++bad_;
    if (!distinct_.insert(std::hash<std::string>()(because)).second) return;
    first_.emplace(position, std::move(because));
    if (first_.size() > kMostNamed) first_.erase(std::prev(first_.end()));
  }

  const exec::SampleMaker& maker_;
  const std::uint64_t tried_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t begun_ = 0, done_ = 0;
  std::uint64_t bad_ = 0;
  std::unordered_set<std::size_t> distinct_;
  std::map<std::uint64_t, std::string> first_;  // by position
  std::optional<Error> failure_;
};

}  // namespace

Result<TriedSamples> try_samples(const std::string& stream, const exec::SampleMaker& maker, bool all,
                                 unsigned threads) {
  Trial trial(maker, all ? maker.size() : std::min(maker.size(), kFew));
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < threads; ++i) workers.emplace_back([&trial] { trial.work(); });
  return trial.wait(stream, all);
}

}  // namespace headrace::server::verbs
