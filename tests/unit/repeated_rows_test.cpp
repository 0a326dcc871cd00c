// Batches with one sample in many rows: ragged fields must have room for it.
#include <gtest/gtest.h>

#include "server/sampler/weighted.h"
#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"

namespace headrace::testing {
namespace {

using server::source::Content;
using server::source::SourceField;

/// Sample i has i values.
class Growing final : public ForwardingSource {
 public:
  explicit Growing(std::uint64_t n)
      : ForwardingSource(server::source::make_synthetic(n, 1).value()), most_(n), values_(n, 7) {}
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    out.item(0).bytes = std::span(values_).first(index);
    return {};
  }
  [[nodiscard]] std::uint64_t most_values(std::size_t, std::uint64_t rows) const override {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < std::min(rows, most_); ++i) sum += most_ - 1 - i;
    return sum;
  }

 private:
  const std::uint64_t most_;
  const std::vector<std::uint8_t> values_;
  const std::vector<SourceField> fields_{
      {.name = "tokens", .content = Content::kRagged, .dtype = DType::kUInt8}};
};

TEST(RepeatedRows, HaveRoomForTheLongestSampleInEachOfThem) {
  constexpr std::uint32_t kRows = 8;
  const auto source = std::make_shared<Growing>(10);
  const auto sampler = server::sampler::make_listed(std::vector<std::uint64_t>(kRows, 9), false, 0);
  auto fields = server::exec::plan_fields(*source, {}, kRows, sampler->repeats()).value();
  EXPECT_EQ(fields[0].spec.ragged_capacity, 72);
  EXPECT_EQ(server::exec::plan_fields(*source, {}, kRows)->at(0).spec.ragged_capacity, 44);

  auto setup = synthetic_stream("s", sampler->size(), kRows, 1);
  setup.maker = std::make_shared<SampleMaker>(source, std::move(fields),
                                              server::exec::SampleOptions{.sampler = sampler});
  setup.info.fields = setup.maker->fields();
  std::vector<StreamSetup> setups;
  setups.push_back(std::move(setup));
  const auto engine = start_engine(std::move(setups), 2);
  RingClient client(*engine, "s", "c");
  const auto grant = client.next();
  ASSERT_TRUE(grant) << engine->stream(0).failure().message;
  for (std::uint32_t i = 0; i < kRows; ++i) EXPECT_EQ(client.reader().rows(grant->slot)[i].sample_index, 9U);
}

}  // namespace
}  // namespace headrace::testing
