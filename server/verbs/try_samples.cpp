#include "server/verbs/try_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "server/pack/in_order.h"
#include "server/verbs/progress.h"

namespace headrace::server::verbs {
namespace {

constexpr std::uint64_t kFew = 32, kMostAhead = 4096;

bool is_bad_sample(const Error& error) {
  return error.code == ErrorCode::kTooManyBadSamples || error.code == ErrorCode::kBadSample;
}

}  // namespace

Result<TriedSamples> try_samples(const std::string& stream, const exec::SampleMaker& maker, bool all,
                                 unsigned threads) {
  TriedSamples out{.tried = all ? maker.size() : std::min(maker.size(), kFew)};
  const auto position_of = [&](std::uint64_t i) {
    return out.tried == maker.size() ? i : i * maker.size() / out.tried;
  };
  pack::InOrder<Result<exec::Row>> made(0, out.tried, std::numeric_limits<std::uint64_t>::max(), kMostAhead);
  const pack::ThreadGroup group(threads, [&] {
    exec::RowScratch scratch;
    exec::LooseRow row(maker);
    while (const auto i = made.claim()) {
      auto one = maker.show(0, position_of(*i), row.fields, scratch);
      if (!one && is_bad_sample(one.error())) one = fail(one.error().code, scratch.bad);
      made.put(*i, 0, std::move(one));
    }
  });
  std::optional<Progress> progress;
  if (all) progress.emplace("check " + stream, 0, out.tried);
  std::unordered_set<std::size_t> distinct;
  std::uint64_t done = 0;
  while (const auto row = made.take()) {
    if (progress) progress->update(++done);
    if (*row && !(*row)->replaced) continue;
    if (!*row && !is_bad_sample(row->error())) {
      made.stop();
      return fail(row->error());
    }
    ++out.bad;
    const std::string& because = *row ? (*row)->because : row->error().message;
    if (distinct.insert(std::hash<std::string>()(because)).second && out.first.size() < kMostNamed)
      out.first.push_back(because);
  }
  out.distinct = distinct.size();
  return out;
}

}  // namespace headrace::server::verbs
