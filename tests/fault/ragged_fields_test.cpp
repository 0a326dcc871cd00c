// Fields whose rows differ in length: joined in the slot whatever the order in which workers make the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"

namespace headrace::testing {
namespace {

using server::source::Content;
using server::source::Sample;
using server::source::SourceField;

/// Sample i has i % 7 pairs (i, i + k). `announced`: the largest number of values per sample that the source
/// claims.
class Boxes final : public ForwardingSource {
 public:
  explicit Boxes(std::uint64_t count, std::uint64_t announced = 6)
      : ForwardingSource(server::source::make_synthetic(count, 8).value()), announced_(announced) {}
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  [[nodiscard]] std::uint64_t most_values(std::size_t, std::uint64_t rows) const override {
    return announced_ * rows;
  }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    server::source::Item& item = out.item(0);
    item.own(index % 7 * 2 * sizeof(std::int32_t));
    for (std::uint64_t k = 0; k < index % 7; ++k) {
      const std::int32_t pair[2] = {static_cast<std::int32_t>(index), static_cast<std::int32_t>(index + k)};
      std::memcpy(item.storage.data() + k * sizeof pair, pair, sizeof pair);
    }
    return {};
  }

 private:
  const std::uint64_t announced_;
  const std::vector<SourceField> fields_{
      {.name = "boxes", .content = Content::kRagged, .dtype = DType::kInt32, .shape = {2}}};
};

StreamSetup stream_of(const std::shared_ptr<const server::source::Source>& source) {
  StreamSetup setup = synthetic_stream("s", source->size(), 16, 2);
  setup.maker = make_samples(source, {.seed = 3}, {}, 16);
  setup.info.fields = setup.maker->fields();
  return setup;
}

TEST(RaggedFields, ComeJoinedWithOffsetsInTheOrderOfTheRows) {
  auto engine = start_engine({stream_of(std::make_shared<Boxes>(200))}, 4);
  RingClient client(*engine, "s", "c");
  std::uint64_t seen = 0;
  for (int batch = 0; batch < 13; ++batch) {
    const auto grant = client.next(std::chrono::seconds(5));
    ASSERT_TRUE(grant);
    const ring::RingReader& reader = client.reader();
    const std::uint32_t rows = reader.slot(grant->slot).rows;
    const std::int64_t* offsets = reader.offsets(grant->slot, 0);
    const auto* values = reinterpret_cast<const std::int32_t*>(reader.values(grant->slot, 0));
    ASSERT_EQ(offsets[0], 0);
    for (std::uint32_t row = 0; row < rows; ++row) {
      const std::uint64_t index = reader.rows(grant->slot)[row].sample_index;
      ASSERT_EQ(offsets[row + 1] - offsets[row], static_cast<std::int64_t>(index % 7));
      for (std::int64_t k = 0; k < offsets[row + 1] - offsets[row]; ++k) {
        EXPECT_EQ(values[2 * (offsets[row] + k)], static_cast<std::int32_t>(index));
        EXPECT_EQ(values[2 * (offsets[row] + k) + 1], static_cast<std::int32_t>(index) + k);
      }
    }
    seen += rows;
    client.reader().ack(*grant);
  }
  EXPECT_EQ(seen, 200U);
}

TEST(RaggedFields, OfASourceThatGivesMoreThanItAnnouncedStopTheStream) {
  auto engine = start_engine({stream_of(std::make_shared<Boxes>(200, 1))}, 2);
  RingClient client(*engine, "s", "c");
  for (int i = 0; i < 20 && !engine->stream(0).failed(); ++i)
    if (const auto grant = client.next(std::chrono::seconds(1))) client.reader().ack(*grant);
  ASSERT_TRUE(engine->stream(0).failed());
  EXPECT_NE(engine->stream(0).failure().message.find("field `boxes`: a batch has more than the 16 values"),
            std::string::npos)
      << engine->stream(0).failure().message;
}

TEST(RaggedFields, OfOneRowAreShownAsTheyCame) {
  const auto source = std::make_shared<Boxes>(200);
  const auto maker =
      make_samples(source, {.seed = 3, .sampler = server::sampler::make_sequential(source->size())}, {}, 16);
  server::exec::RowScratch scratch;
  server::exec::LooseRow row(*maker);
  ASSERT_TRUE(maker->show(0, 12, row.fields, scratch));
  EXPECT_EQ(row.specs()[0].shape, (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(row.specs()[0].kind, FieldKind::kDense);
  EXPECT_EQ(row.bytes().size(), 5 * 2 * sizeof(std::int32_t) + sizeof(std::int64_t));
}

}  // namespace
}  // namespace headrace::testing
