// Samples that are read in one process and used in another.
#include "server/source/formats/supplied.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "server/source/combine/forwarding.h"
#include "tests/numbers_source.h"

namespace headrace::server::source {
namespace {

using headrace::testing::Numbers;
using ::testing::HasSubstr;

/// Numbers of which some cannot be read.
class Faulty final : public ForwardingSource {
 public:
  Faulty(std::shared_ptr<const Source> real, std::set<std::uint64_t> bad, ErrorCode code)
      : ForwardingSource(std::move(real)), bad_(std::move(bad)), code_(code) {}
  Result<void> read(std::uint64_t index, Sample& out) const override {
    if (bad_.contains(index)) return fail(code_, "number on fire");
    return ForwardingSource::read(index, out);
  }
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override { return index + 1000; }

 private:
  const std::set<std::uint64_t> bad_;
  const ErrorCode code_;
};

std::shared_ptr<const Source> numbers(std::set<std::uint64_t> bad = {},
                                      ErrorCode code = ErrorCode::kBadSample) {
  return std::make_shared<Faulty>(
      std::make_shared<Numbers>(headrace::testing::NumbersOptions{
          .first = 3, .count = 20, .classes = {"a", "b"}, .fields = {"x", "y"}, .width = 5}),
      std::move(bad), code);
}

Supplied supplied(const Source& source) {
  const SuppliedAbout about{.positions = source.size(),
                            .fields = source.fields(),
                            .classes = source.class_names(),
                            .fingerprint = source.fingerprint(),
                            .sampler_content = 7};
  return Supplied(SuppliedAbout::from_json(about.to_json()).value());
}

template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "none" : result.error().to_string();
}

TEST(Supplied, DescribesItsSource) {
  const auto source = numbers();
  const Supplied made = supplied(*source);
  EXPECT_EQ(made.size(), 20U);
  EXPECT_EQ(made.fingerprint(), source->fingerprint());
  EXPECT_EQ(made.class_names(), source->class_names());
  EXPECT_EQ(made.about().sampler_content, 7U);
  ASSERT_EQ(made.fields().size(), 2U);
  EXPECT_EQ(made.fields()[1].name, "y");
  EXPECT_EQ(made.fields()[1].shape, std::vector<std::int64_t>{5});
  EXPECT_THAT(error_of(SuppliedAbout::from_json("{}")), HasSubstr("INVALID_ARGUMENT: invalid description"));
  EXPECT_THAT(error_of(SuppliedAbout::from_json("no JSON")), HasSubstr("describe_source()"));
}

TEST(Supplied, ReadsWhatWasHandedOver) {
  const auto source = numbers({4});
  Supplied made = supplied(*source);
  const std::vector<std::uint64_t> samples{9, 4, 2, 9};
  const auto packed = pack_samples(*source, samples, 0).value();
  ASSERT_TRUE(made.hand_over(12, 4, packed));
  Sample expected, found;
  for (std::uint64_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(made.whole_index(12 + i), 1000 + samples[i]);
    EXPECT_EQ(made.label(12 + i), source->label(samples[i]));
    if (samples[i] == 4) {
      EXPECT_EQ(made.read(12 + i, found).error().code, ErrorCode::kBadSample);
      continue;
    }
    ASSERT_TRUE(source->read(samples[i], expected));
    ASSERT_TRUE(made.read(12 + i, found));
    for (std::size_t f = 0; f < 2; ++f)
      EXPECT_TRUE(std::ranges::equal(found.items[f].bytes, expected.items[f].bytes));
  }
  EXPECT_EQ(made.name(12), "sample 1009");
  for (const std::uint64_t other : {11, 16})
    EXPECT_THAT(error_of(made.read(other, found)), HasSubstr("INVALID_ARGUMENT: the sample at position 1"));
  made.take_back();
  EXPECT_FALSE(made.read(12, found));
}

TEST(Supplied, RefusesWhatIsNotPackedSamples) {
  const auto source = numbers();
  Supplied made = supplied(*source);
  auto packed = pack_samples(*source, std::vector<std::uint64_t>{1, 2}, 0).value();
  EXPECT_THAT(error_of(made.hand_over(0, 3, packed)), HasSubstr("too few bytes"));
  EXPECT_THAT(error_of(made.hand_over(0, 1, packed)), HasSubstr("other rows"));
  for (std::size_t size = 0; size < packed.size(); ++size)
    EXPECT_FALSE(made.hand_over(0, 2, std::span(packed).first(size))) << size;
  packed.push_back(0);
  EXPECT_THAT(error_of(made.hand_over(0, 2, packed)), HasSubstr("too many bytes"));
  packed[8 + 2 * 24] = 0xFF;  // the first item's size
  packed[8 + 2 * 24 + 7] = 0xFF;
  EXPECT_THAT(error_of(made.hand_over(0, 2, packed)), HasSubstr("truncated"));
  Sample sample;
  EXPECT_FALSE(made.read(0, sample)) << "nothing is left of what was refused";
}

TEST(Supplied, PacksNothingIfTheSourceCannotBeRead) {
  const auto source = numbers({1}, ErrorCode::kTransientIo);
  EXPECT_EQ(error_of(pack_samples(*source, std::vector<std::uint64_t>{0, 1}, 0)),
            "TRANSIENT_IO: number on fire");
}

}  // namespace
}  // namespace headrace::server::source
