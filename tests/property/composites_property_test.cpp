// Random trees of sources: however they are nested, indices, names, bytes and classes stay together.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "server/source/combine/concat.h"
#include "server/source/combine/relabel.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/split.h"
#include "server/source/combine/zip.h"
#include "tests/numbers_source.h"

namespace headrace::server::source {
namespace {

using headrace::testing::Numbers;
using SourcePtr = std::shared_ptr<const Source>;
using Random = std::mt19937_64;

/// A tree and its expected content: the first byte of each of its samples.
struct Tree {
  SourcePtr source;
  std::vector<std::uint8_t> bytes;
};

Tree leaf(Random& random) {
  const std::uint64_t first = random() % 200, count = 1 + random() % 40;
  Tree out{std::make_shared<Numbers>(headrace::testing::NumbersOptions{
               .first = first, .count = count, .classes = {"a", "b", "c"}, .ragged = "r"}),
           {}};
  for (std::uint64_t i = 0; i < count; ++i) out.bytes.push_back(static_cast<std::uint8_t>(first + i));
  return out;
}

Tree grow(Random& random, int depth) {
  if (depth == 0) return leaf(random);
  Tree one = grow(random, depth - 1);
  switch (random() % 5) {
    case 0: {
      const Tree other = grow(random, static_cast<int>(random() % static_cast<std::uint64_t>(depth)));
      one.source = concat({{"one", one.source}, {"other", other.source}}).value();
      one.bytes.insert(one.bytes.end(), other.bytes.begin(), other.bytes.end());
      break;
    }
    case 1: {
      one.source = repeat(one.source, 1 + random() % 3).value();
      const auto once = one.bytes;
      while (one.bytes.size() < one.source->size())
        one.bytes.insert(one.bytes.end(), once.begin(), once.end());
      break;
    }
    case 2: {
      const std::uint64_t count = 1 + random() % one.source->size();
      one.source = first_samples(one.source, count).value();
      one.bytes.resize(count);
      break;
    }
    case 3: {
      const auto part = subset(one.source, SplitFractions{{{"", 0.9}}, random()});
      if (!part) break;  // too small for it
      std::vector<std::uint8_t> bytes;
      std::uint64_t at = 0;
      for (std::uint64_t i = 0; i < (*part)->size(); ++i) {
        while (one.source->whole_index(at) != (*part)->whole_index(i)) ++at;
        bytes.push_back(one.bytes[at]);
      }
      one.source = *part;
      one.bytes = std::move(bytes);
      break;
    }
    default:
      one.source = relabel(one.source, {.remap = {}, .classes = {"z", "y", "c", "b", "a"}}).value();
      if (random() % 2 == 0) one.source = relabel(one.source, {.remap = {{"z", "y"}}}).value();
      one.source = relabel(one.source, {.remap = {}, .classes = {"a", "b", "c", "y", "z"}}).value();
  }
  return one;
}

TEST(CompositesProperty, IndicesNamesBytesAndClassesStayTogether) {
  Random random(7);
  for (int round = 0; round < 400; ++round) {
    const Tree tree = grow(random, 1 + static_cast<int>(random() % 6));
    const Source& source = *tree.source;
    ASSERT_EQ(source.size(), tree.bytes.size());
    Sample sample;
    std::set<std::string> names;
    const auto sizes = source.distinct_sizes();
    const auto distinct = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    std::map<std::uint64_t, std::uint8_t> kept;
    std::vector<std::uint64_t> lengths;
    for (std::uint64_t i = 0; i < source.size(); ++i) {
      ASSERT_TRUE(source.read(i, sample));
      const std::uint8_t number = tree.bytes[i];
      ASSERT_EQ(sample.items[0].bytes[0], number);
      lengths.push_back(sample.items[1].bytes.size());
      // The sample of the whole source is the same.
      const Source& whole = source.whole();
      const std::uint64_t there = source.index_in_whole(i);
      ASSERT_LT(there, whole.size());
      ASSERT_EQ(whole.whole_index(there), source.whole_index(i));
      ASSERT_EQ(whole.name(there), source.name(i));
      ASSERT_TRUE(i == 0 || source.whole_index(i - 1) < source.whole_index(i));
      ASSERT_TRUE(i == 0 || source.index_in_whole(i - 1) < there);
      // Caches keep one sample for it and for all that are the same.
      ASSERT_LT(source.index_in_distinct(i), distinct);
      ASSERT_EQ(kept.emplace(source.index_in_distinct(i), number).first->second, number);
      ASSERT_TRUE(names.insert(source.name(i)).second) << source.name(i);
      const std::string& name = source.class_names().at(static_cast<std::size_t>(source.label(i)));
      ASSERT_EQ(name, std::string(1, static_cast<char>('a' + number % 3)));
    }
    ASSERT_EQ(&source.whole().whole(), &source.whole());
    std::sort(lengths.rbegin(), lengths.rend());
    std::uint64_t sum = 0;
    for (std::size_t rows = 1; rows <= lengths.size(); ++rows) {
      sum += lengths[rows - 1];
      ASSERT_GE(source.most_values(1, rows), sum);
    }
  }
}

TEST(CompositesProperty, PartsOfAConcatAreDisjointAndCoverIt) {
  Random random(8);
  for (int round = 0; round < 100; ++round) {
    const auto all =
        concat({{"a", leaf(random).source}, {"b", leaf(random).source}, {"c", leaf(random).source}});
    ASSERT_TRUE(all);
    const auto parts = split(*all, SplitFractions{{{"train", 0.7}, {"val", 0.3}}, random()});
    if (!parts) continue;
    std::vector<int> seen((*all)->size());
    for (const auto& [name, part] : *parts)
      for (std::uint64_t i = 0; i < part->size(); ++i) ++seen.at(part->whole_index(i));
    for (const int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(CompositesProperty, FingerprintsTellTreesApart) {
  const auto a = std::make_shared<Numbers>(headrace::testing::NumbersOptions{.first = 0, .count = 6});
  const auto b =
      std::make_shared<Numbers>(headrace::testing::NumbersOptions{.first = 9, .count = 6, .fields = {"y"}});
  const auto c = std::make_shared<Numbers>(headrace::testing::NumbersOptions{.first = 9, .count = 6});
  const std::vector<SourcePtr> all{a,
                                   b,
                                   c,
                                   concat({{"a", a}, {"c", c}}).value(),
                                   concat({{"c", c}, {"a", a}}).value(),
                                   concat({{"a", a}}).value(),
                                   repeat(a, 1).value(),
                                   repeat(a, 2).value(),
                                   first_samples(a, 5).value(),
                                   subset(a, SplitFractions{{{"", 0.5}}, 1}).value(),
                                   subset(a, SplitFractions{{{"", 0.5}}, 2}).value(),
                                   relabel(a, {.remap = {{"number", "n"}}}).value(),
                                   zip({{"a", a}, {"b", b}}, {.label = "a"}).value(),
                                   zip({{"a", a}, {"b", b}}, {.label = "b"}).value(),
                                   zip({{"b", b}, {"a", a}}, {.label = "b"}).value()};
  std::set<std::uint64_t> prints;
  for (const SourcePtr& source : all) prints.insert(source->fingerprint());
  // b and c have one fingerprint: Numbers' does not know its fields.
  EXPECT_EQ(prints.size(), all.size() - 1);
  EXPECT_EQ(concat({{"a", a}, {"c", c}}).value()->fingerprint(),
            concat({{"other", a}, {"names", c}}).value()->fingerprint());
}

}  // namespace
}  // namespace headrace::server::source
