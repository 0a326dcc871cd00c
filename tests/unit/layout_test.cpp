#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "clientlib/ring/slot_layout.h"
#include "tests/unit/ring_harness.h"

namespace headrace::ring::testing {
namespace {

FieldSpec dense(std::string name, DType dtype, std::vector<std::int64_t> shape) {
  return {.name = std::move(name), .dtype = dtype, .kind = FieldKind::kDense, .shape = std::move(shape)};
}

// The worked example of clientlib/ring/README.md: change both or neither.
TEST(SlotLayout, HasTheNumbersOfTheReadme) {
  const std::vector<FieldSpec> fields{dense("image", DType::kFloat32, {3, 224, 224}),
                                      dense("label", DType::kInt64, {})};
  const SlotLayout layout = value_or_die(SlotLayout::plan(fields, 64));
  EXPECT_EQ(layout.fields[0].values_offset, 0U);
  EXPECT_EQ(layout.fields[0].values_bytes, 38'535'168U);
  EXPECT_EQ(layout.fields[1].values_offset, 38'535'168U);
  EXPECT_EQ(layout.fields[1].values_bytes, 512U);
  EXPECT_EQ(layout.rows_offset, 38'535'680U);
  EXPECT_EQ(layout.slot_stride, 38'539'264U);
  const RingWriter::Options options{.name = "train", .fields = fields, .rows = 64, .slots = 8, .lanes = 4};
  EXPECT_EQ(value_or_die(RingWriter::bytes_needed(options)), 8U * 38'539'264 + 9'472);
}

TEST(SlotLayout, PutsRaggedOffsetsBehindTheirValues) {
  const std::vector<FieldSpec> fields{{.name = "boxes",
                                       .dtype = DType::kFloat32,
                                       .kind = FieldKind::kRagged,
                                       .shape = {4},
                                       .ragged_capacity = 10}};
  const SlotLayout layout = value_or_die(SlotLayout::plan(fields, 3));
  EXPECT_EQ(layout.fields[0].values_bytes, 160U);
  EXPECT_EQ(layout.fields[0].offsets_offset, 192U);
  EXPECT_EQ(layout.rows_offset, 256U);
  EXPECT_EQ(layout.slot_stride, 4096U);
}

TEST(SlotLayout, NeverOverlapsAlwaysAlignsAndRoundTripsThroughTheControlSegment) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<FieldSpec> fields;
    const std::size_t count = 1 + random() % 8;
    const auto rows = static_cast<std::uint32_t>(1 + random() % 100);
    for (std::size_t f = 0; f < count; ++f) {
      FieldSpec field = dense("f" + std::to_string(f), static_cast<DType>(1 + random() % 10), {});
      for (std::size_t d = random() % 4; d > 0; --d) field.shape.push_back(1 + random() % 30);
      if (random() % 3 == 0) {
        field.kind = FieldKind::kRagged;
        field.ragged_capacity = 1 + random() % 1000;
      }
      fields.push_back(field);
    }
    const SlotLayout layout = value_or_die(SlotLayout::plan(fields, rows));
    std::uint64_t end = 0;
    const auto follows = [&end](std::uint64_t offset, std::uint64_t bytes) {
      EXPECT_EQ(offset % 64, 0U);
      EXPECT_GE(offset, end);
      end = offset + bytes;
    };
    for (std::size_t f = 0; f < count; ++f) {
      const FieldDesc& desc = layout.fields[f];
      const bool ragged = fields[f].kind == FieldKind::kRagged;
      follows(desc.values_offset, desc.values_bytes);
      EXPECT_EQ(
          desc.values_bytes,
          row_bytes(fields[f]) * (ragged ? static_cast<std::uint64_t>(fields[f].ragged_capacity) : rows));
      if (ragged) follows(desc.offsets_offset, (rows + 1) * sizeof(std::int64_t));
      EXPECT_EQ(value_or_die(to_spec(desc)), fields[f]);
    }
    follows(layout.rows_offset, rows * sizeof(RowDesc));
    EXPECT_GE(layout.slot_stride, end);
    EXPECT_LT(layout.slot_stride, end + 4096);
    EXPECT_EQ(layout.slot_stride % 4096, 0U);
  }
}

TEST(SlotLayout, RefusesWhatCannotBeLaidOut) {
  const auto refused = [](std::vector<FieldSpec> fields, std::uint32_t rows) {
    const auto layout = SlotLayout::plan(fields, rows);
    return !layout && layout.error().code == ErrorCode::kInvalidArgument;
  };
  const FieldSpec good = dense("x", DType::kUInt8, {4});
  EXPECT_FALSE(refused({good}, 1));
  EXPECT_TRUE(refused({}, 1));
  EXPECT_TRUE(refused({good}, 0));
  EXPECT_TRUE(refused({good, good}, 1));
  EXPECT_TRUE(refused({dense("", DType::kUInt8, {})}, 1));
  EXPECT_TRUE(refused({dense("Image", DType::kUInt8, {})}, 1));
  EXPECT_TRUE(refused({dense(std::string(48, 'a'), DType::kUInt8, {})}, 1));
  EXPECT_FALSE(refused({dense(std::string(47, 'a'), DType::kUInt8, {})}, 1));
  EXPECT_TRUE(refused({dense("x", DType::kUInt8, {-1})}, 1));
  EXPECT_TRUE(refused({dense("x", DType::kUInt8, {1, 1, 1, 1, 1, 1, 1})}, 1));
  EXPECT_TRUE(refused({dense("x", DType::kFloat64, {1LL << 40, 1LL << 40})}, 1));
  EXPECT_TRUE(refused({dense("x", static_cast<DType>(0), {})}, 1));
  EXPECT_TRUE(refused({dense("x", static_cast<DType>(200), {})}, 1));
  EXPECT_TRUE(refused({{.name = "r", .kind = FieldKind::kRagged, .ragged_capacity = 0}}, 1));
  EXPECT_TRUE(refused(std::vector<FieldSpec>(kMaxFields + 1, good), 1));
}

// --- a client's refusals: control segments forged from a real one

class ForgedControl : public ::testing::Test {
 protected:
  ForgedControl() : ring_(make_ring(2, 1)) {}

  template <class Change>
  ErrorCode opened_after(Change change, std::string* message = nullptr) {
    if (ring_->attached(0)) ring_->detach(0);
    auto fds = descriptors_for(*ring_, 0);
    auto real = value_or_die(Segment::map(std::move(fds.control), Access::kReadOnly, 1));
    auto forged = value_or_die(Segment::create("forged", real.size(), ClientAccess::kReadWrite));
    std::memcpy(forged.data(), real.data(), real.size());
    change(*reinterpret_cast<ControlHeader*>(forged.data()),
           *reinterpret_cast<FieldDesc*>(forged.data() + sizeof(ControlHeader)));
    fds.control = forged.take_fd();
    const auto opened = RingReader::open(std::move(fds), 0);
    if (opened) return ErrorCode::kInternal;
    if (message != nullptr) *message = opened.error().message;
    return opened.error().code;
  }

  std::unique_ptr<RingWriter> ring_;
};

TEST_F(ForgedControl, IsAcceptedUnchanged) {
  EXPECT_EQ(opened_after([](ControlHeader&, FieldDesc&) {}), ErrorCode::kInternal);
}

TEST_F(ForgedControl, OfAnotherVersionIsRefusedNamingBothVersions) {
  std::string message;
  EXPECT_EQ(opened_after([](ControlHeader& head, FieldDesc&) { head.layout_version = 7; }, &message),
            ErrorCode::kVersionMismatch);
  EXPECT_NE(message.find("version 7"), std::string::npos) << message;
  EXPECT_NE(message.find("version " + std::to_string(kLayoutVersion)), std::string::npos) << message;
  EXPECT_EQ(opened_after([](ControlHeader& head, FieldDesc&) { head.header_bytes = 512; }),
            ErrorCode::kVersionMismatch);
}

TEST_F(ForgedControl, WithAnyOffsetOrCountOutOfBoundsIsABadMessage) {
  using Change = void (*)(ControlHeader&, FieldDesc&);
  const std::vector<Change> changes{
      [](ControlHeader& head, FieldDesc&) { head.magic ^= 1; },
      [](ControlHeader& head, FieldDesc&) { head.control_bytes += 1; },
      [](ControlHeader& head, FieldDesc&) { head.control_bytes = 256; },
      [](ControlHeader& head, FieldDesc&) { head.data_bytes += 1; },
      [](ControlHeader& head, FieldDesc&) { head.slot_count = 3; },
      [](ControlHeader& head, FieldDesc&) { head.slot_count = 0; },
      [](ControlHeader& head, FieldDesc&) { head.slot_count = 0xFFFFFFFF; },
      [](ControlHeader& head, FieldDesc&) { head.slot_stride = ~std::uint64_t{0} / 2 + 1; },
      [](ControlHeader& head, FieldDesc&) { head.field_count = 0; },
      [](ControlHeader& head, FieldDesc&) { head.field_count = 65; },
      [](ControlHeader& head, FieldDesc&) { head.lane_count = 0; },
      [](ControlHeader& head, FieldDesc&) { head.lane_count = 1000; },
      [](ControlHeader& head, FieldDesc&) { head.row_capacity = 0; },
      [](ControlHeader& head, FieldDesc&) { head.row_capacity = 5; },
      [](ControlHeader& head, FieldDesc&) { head.rows_offset = 4096; },
      [](ControlHeader& head, FieldDesc&) { head.rows_offset += 1; },
      [](ControlHeader& head, FieldDesc&) { head.fields_offset = ~std::uint64_t{0} - 7; },
      [](ControlHeader& head, FieldDesc&) { head.slots_offset += 8; },
      [](ControlHeader& head, FieldDesc&) { head.lanes_offset = head.control_bytes; },
      [](ControlHeader&, FieldDesc& field) { field.dtype = 99; },
      [](ControlHeader&, FieldDesc& field) { field.kind = 3; },
      [](ControlHeader&, FieldDesc& field) { field.rank = 7; },
      [](ControlHeader&, FieldDesc& field) { field.shape[0] = -3; },
      [](ControlHeader&, FieldDesc& field) { field.shape[0] = 1LL << 62; },
      [](ControlHeader&, FieldDesc& field) { std::memset(field.name, 'a', sizeof field.name); },
      [](ControlHeader&, FieldDesc& field) { field.name[0] = '/'; },
      [](ControlHeader&, FieldDesc& field) { field.values_offset = 1 << 20; },
      [](ControlHeader&, FieldDesc& field) { field.values_offset = ~std::uint64_t{63}; },
      [](ControlHeader&, FieldDesc& field) { field.values_bytes = 192; },
      [](ControlHeader&, FieldDesc& field) { field.offsets_offset = 64; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_EQ(opened_after(changes[i]), ErrorCode::kBadMessage) << "change " << i;
}

TEST_F(ForgedControl, WithMoreBytesThanANumberHoldsIsABadMessage) {
  ring_ = value_or_die(RingWriter::create(
      {.name = "test", .fields = {dense("x", DType::kUInt8, {})}, .rows = 1 << 16, .slots = 1, .lanes = 1}));
  EXPECT_EQ(opened_after([](ControlHeader&, FieldDesc& field) {
              field.rank = 2;
              field.shape[0] = field.shape[1] = 1 << 24;  // 2^48 bytes per row, so 2^64 for all rows
              field.values_bytes = 0;
            }),
            ErrorCode::kBadMessage);
}

TEST_F(ForgedControl, IsRefusedForALaneThatIsNotThere) {
  const auto opened = RingReader::open(descriptors_for(*ring_, 0), 1);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kBadMessage);
}

TEST_F(ForgedControl, IsRefusedWhenSegmentsAreMixedUp) {
  auto fds = descriptors_for(*ring_, 0);
  std::swap(fds.data, fds.control);
  EXPECT_EQ(RingReader::open(std::move(fds), 0).error().code, ErrorCode::kBadMessage);
}

TEST(ReadOnlyRing, LeavesTheClientWithoutAWayToWrite) {
  auto options = small_ring(2, 1);
  options.data_access = ClientAccess::kReadOnly;
  auto ring = value_or_die(RingWriter::create(options));
  auto reader = attach(*ring, 0);
  EXPECT_FALSE(reader->data_writable());
  EXPECT_EQ(::mprotect(reader->data().data(), 4096, PROT_READ | PROT_WRITE), -1);
  const auto trusted = make_ring(1, 1);
  reader = attach(*trusted, 0);
  EXPECT_TRUE(reader->data_writable());
  EXPECT_DEATH(reader->data()[0] = std::byte{1}, "") << "the mapping is read-only until mprotect";
  EXPECT_EQ(::mprotect(reader->data().data(), reader->data().size(), PROT_READ | PROT_WRITE), 0);
}

}  // namespace
}  // namespace headrace::ring::testing
