// The copy engine over the CPU backend, and over devices that refuse or stall. Leases are fakes: a shared_ptr
// that says when it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "headrace/gpu.h"
#include "tests/unit/scripted_device.h"

namespace headrace::gpu {
namespace {

constexpr std::size_t kPage = 4096;

/// A page-aligned mapping like the ring's, filled with a pattern.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes)
      : span_(static_cast<std::byte*>(
                  ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
              bytes) {
    for (std::size_t i = 0; i < bytes; ++i) span_[i] = static_cast<std::byte>(i * 131 + i / 251);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(span_.data(), span_.size()); }
  [[nodiscard]] std::span<std::byte> span() const { return span_; }

 private:
  std::span<std::byte> span_;
};

std::unique_ptr<CopyEngine> engine_over(Script& script, EngineOptions options = {}) {
  return std::make_unique<CopyEngine>(std::make_unique<ScriptedDevice>(script), std::move(options));
}

/// A lease that sets `ended` when its last owner drops it.
std::shared_ptr<const void> fake_lease(std::atomic<bool>& ended) {
  return {&ended, [](std::atomic<bool>* flag) { flag->store(true); }};
}

TEST(CopyEngine, CopiesBytesUnchangedFromAPinnedMapping) {
  const auto mapping = std::make_shared<Mapping>(4 * kPage);
  auto engine = CopyEngine::open({.device = "host"}).value();
  engine->register_mapping(mapping->span(), mapping);
  const auto buffer = engine->allocate(3 * kPage).value();
  const Transfer transfer{mapping->span().data() + 100, buffer.data(), 3 * kPage};
  const auto copy = engine->copy({&transfer, 1}, nullptr).value();
  ASSERT_TRUE(copy.wait().has_value());
  EXPECT_TRUE(copy.done());
  EXPECT_EQ(std::memcmp(buffer.data(), mapping->span().data() + 100, 3 * kPage), 0);
  EXPECT_EQ(engine->stats().direct_copies, 1U);
  EXPECT_EQ(engine->stats().staged_copies, 0U);
  EXPECT_EQ(engine->stats().pinned_bytes, 4 * kPage);
}

TEST(CopyEngine, KeepsTheLeaseUntilTheCopyHasEndedAlthoughTheCallerStalls) {
  const auto mapping = std::make_shared<Mapping>(kPage);
  std::promise<void> gate;
  Script script{.gate = gate.get_future().share()};
  auto engine = engine_over(script);
  engine->register_mapping(mapping->span(), mapping);
  const auto buffer = engine->allocate(kPage).value();
  std::atomic<bool> ended = false;
  const Transfer transfer{mapping->span().data(), buffer.data(), kPage};
  const auto copy = engine->copy({&transfer, 1}, fake_lease(ended)).value();
  EXPECT_FALSE(copy.done());
  EXPECT_FALSE(ended);
  gate.set_value();
  ASSERT_TRUE(copy.wait().has_value());
  EXPECT_TRUE(ended) << "a finished copy must have ended its lease";
}

TEST(CopyEngine, EndsEachLeaseOnceWhenSeveralThreadsWaitForTheCopies) {
  constexpr int kCopies = 500, kWaiters = 3;
  const auto mapping = std::make_shared<Mapping>(kPage);
  auto engine = CopyEngine::open({.device = "host"}).value();
  engine->register_mapping(mapping->span(), mapping);
  const auto buffer = engine->allocate(kPage).value();
  const Transfer transfer{mapping->span().data(), buffer.data(), kPage};
  std::vector<std::atomic<int>> ended(kCopies);
  for (auto& count : ended) {
    const auto copy = engine->copy({&transfer, 1}, {&count, [](std::atomic<int>* at) { ++*at; }}).value();
    std::vector<std::jthread> waiters;
    for (int i = 0; i < kWaiters; ++i)
      waiters.emplace_back([&count, copy] {
        EXPECT_TRUE(copy.wait().has_value());
        EXPECT_EQ(count, 1);
      });
  }
}

TEST(CopyEngine, EndsLeasesWithoutAnyCallByTheTrainer) {
  const auto mapping = std::make_shared<Mapping>(kPage);
  Script script;
  auto engine = engine_over(script);
  engine->register_mapping(mapping->span(), mapping);
  const auto buffer = engine->allocate(kPage).value();
  std::promise<void> ended;
  const Transfer transfer{mapping->span().data(), buffer.data(), kPage};
  const auto copy =
      engine->copy({&transfer, 1}, {&ended, [](std::promise<void>* promise) { promise->set_value(); }});
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(CopyEngine, SplitsCopiesAtTheBordersOfRegisteredChunks) {
  const auto mapping = std::make_shared<Mapping>(4 * kPage);
  Script script;
  auto engine = engine_over(script, {.pin_chunk = kPage});
  engine->register_mapping(mapping->span(), mapping);
  EXPECT_THAT(script.pinned, testing::ElementsAre(kPage, kPage, kPage, kPage));
  const auto buffer = engine->allocate(3 * kPage).value();
  const std::byte* first = mapping->span().data() + kPage / 2;
  const Transfer transfer{first, buffer.data(), 2 * kPage};
  ASSERT_TRUE(engine->copy({&transfer, 1}, nullptr).value().wait().has_value());
  using Copy = std::pair<const std::byte*, std::size_t>;
  EXPECT_THAT(script.copies,
              testing::ElementsAre(Copy{first, kPage / 2}, Copy{mapping->span().data() + kPage, kPage},
                                   Copy{mapping->span().data() + 2 * kPage, kPage / 2}));
  EXPECT_EQ(std::memcmp(buffer.data(), first, 2 * kPage), 0);
}

TEST(CopyEngine, StagesWhenPinningIsRefusedAndSaysSoOnce) {
  const auto mapping = std::make_shared<Mapping>(4 * kPage);
  const auto second = std::make_shared<Mapping>(kPage);
  Script script{.refuse_pin_after = 2};
  std::vector<std::string> warnings;
  auto engine = engine_over(
      script, {.pin_chunk = kPage, .warn = [&](std::string_view text) { warnings.emplace_back(text); }});
  engine->register_mapping(mapping->span(), mapping);
  EXPECT_EQ(script.unpinned, 2U) << "a mapping must not stay pinned in part";
  const auto buffer = engine->allocate(kPage).value();
  for (int i = 0; i < 5; ++i) {
    std::atomic<bool> ended = false;
    const Transfer transfer{mapping->span().data() + i * 100, buffer.data(), kPage};
    const auto copy = engine->copy({&transfer, 1}, fake_lease(ended)).value();
    ASSERT_TRUE(copy.wait().has_value());
    EXPECT_TRUE(ended);
    EXPECT_EQ(std::memcmp(buffer.data(), mapping->span().data() + i * 100, kPage), 0);
  }
  engine->register_mapping(second->span(), second);
  EXPECT_EQ(engine->stats().staged_copies, 5U);
  EXPECT_EQ(engine->stats().pinned_bytes, 0U);
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("no more memory may be locked")));
}

/// As the ring of a server to which further clients attach.
TEST(CopyEngine, PinsWhatAMappingHasGrownBy) {
  const auto mapping = std::make_shared<Mapping>(8 * kPage);
  Script script;
  auto engine = engine_over(script, {.pin_chunk = 2 * kPage});
  engine->register_mapping(mapping->span().first(3 * kPage), mapping);
  EXPECT_THAT(script.pinned, testing::ElementsAre(2 * kPage, kPage));
  engine->register_mapping(mapping->span(), mapping);
  EXPECT_THAT(script.pinned, testing::ElementsAre(2 * kPage, kPage, 2 * kPage, 2 * kPage, kPage));
  engine->register_mapping(mapping->span().first(3 * kPage), mapping);
  EXPECT_EQ(script.pinned.size(), 5U);
  EXPECT_EQ(engine->stats().pinned_bytes, 8 * kPage);
  {
    const auto buffer = engine->allocate(8 * kPage).value();
    const std::byte* from = mapping->span().data();
    const Transfer transfer{from, buffer.data(), 8 * kPage};
    ASSERT_TRUE(engine->copy({&transfer, 1}, nullptr).value().wait().has_value());
    using Copy = std::pair<const std::byte*, std::size_t>;
    EXPECT_THAT(script.copies,
                testing::ElementsAre(Copy{from, 2 * kPage}, Copy{from + 2 * kPage, kPage},
                                     Copy{from + 3 * kPage, 2 * kPage}, Copy{from + 5 * kPage, 2 * kPage},
                                     Copy{from + 7 * kPage, kPage}));
    EXPECT_EQ(std::memcmp(buffer.data(), from, 8 * kPage), 0);
  }
  engine.reset();
  EXPECT_EQ(script.unpinned, 5U);
}

TEST(CopyEngine, StagesOnlyTheGrowthThatCouldNotBePinned) {
  const auto mapping = std::make_shared<Mapping>(4 * kPage);
  Script script{.refuse_pin_after = 3};
  std::vector<std::string> warnings;
  auto engine = engine_over(
      script, {.pin_chunk = kPage, .warn = [&](std::string_view text) { warnings.emplace_back(text); }});
  engine->register_mapping(mapping->span().first(2 * kPage), mapping);
  for (int i = 0; i < 2; ++i) engine->register_mapping(mapping->span(), mapping);
  EXPECT_EQ(engine->stats().pinned_bytes, 2 * kPage);
  EXPECT_THAT(warnings,
              testing::ElementsAre(testing::HasSubstr("cannot pin 8192 of the ring's 16384 bytes")));
  const auto buffer = engine->allocate(kPage).value();
  for (int page = 0; page < 4; ++page) {
    const Transfer transfer{mapping->span().data() + page * kPage, buffer.data(), kPage};
    ASSERT_TRUE(engine->copy({&transfer, 1}, nullptr).value().wait().has_value());
    EXPECT_EQ(std::memcmp(buffer.data(), transfer.source, kPage), 0);
  }
  EXPECT_EQ(engine->stats().direct_copies, 2U);
  EXPECT_EQ(engine->stats().staged_copies, 2U);
}

TEST(CopyEngine, JoinsNeighborsInAMappingWithoutLargeGaps) {
  enum class Source : std::uint8_t { kPinned, kNotPinned, kNotRegistered };
  for (const Source kind : {Source::kPinned, Source::kNotPinned, Source::kNotRegistered}) {
    const auto source = std::make_shared<Mapping>(32 * kPage);
    Script script{.refuse_pin_after = kind == Source::kPinned ? 1 : 0};
    auto engine = engine_over(script, {.warn = [](std::string_view) {}});
    if (kind != Source::kNotRegistered) engine->register_mapping(source->span(), source);
    const auto buffer = engine->allocate(32 * kPage).value();
    const std::byte* from = source->span().data();
    const std::vector<Transfer> fields{{from + 30 * kPage, buffer.data() + 30 * kPage, 50},
                                       {from, buffer.data(), 100},
                                       {from + 128, buffer.data() + 128, 200}};
    std::atomic<bool> ended = false;
    const auto copy =
        engine->copy_into({buffer.data(), 32 * kPage, nullptr}, fields, fake_lease(ended)).value();
    ASSERT_TRUE(copy.wait().has_value());
    EXPECT_TRUE(ended);
    for (const Transfer& field : fields)
      EXPECT_EQ(std::memcmp(field.destination, field.source, field.bytes), 0);
    using Copy = std::pair<const std::byte*, std::size_t>;
    const Copy last{from + 30 * kPage, 50};
    if (kind == Source::kNotRegistered)  // the memory between the sources might not be mapped
      EXPECT_THAT(script.copies, testing::ElementsAre(Copy{from, 100}, Copy{from + 128, 200}, last));
    else
      EXPECT_THAT(script.copies, testing::ElementsAre(Copy{from, 328}, last));
    EXPECT_EQ(engine->stats().direct_copies, kind == Source::kPinned ? 1U : 0U);
    EXPECT_EQ(engine->stats().staged_copies, kind == Source::kPinned ? 0U : 1U);
  }
}

TEST(CopyEngine, SplitsACopyWhereThePinnedPartOfAMappingEnds) {
  const auto mapping = std::make_shared<Mapping>(4 * kPage);
  Script script{.refuse_pin_after = 1};
  auto engine = engine_over(script, {.pin_chunk = 2 * kPage, .warn = [](std::string_view) {}});
  engine->register_mapping(mapping->span().first(2 * kPage), mapping);
  engine->register_mapping(mapping->span(), mapping);
  const auto buffer = engine->allocate(2 * kPage).value();
  const std::byte* from = mapping->span().data() + kPage;
  const Transfer transfer{from, buffer.data(), 2 * kPage};
  ASSERT_TRUE(engine->copy({&transfer, 1}, nullptr).value().wait().has_value());
  using Copy = std::pair<const std::byte*, std::size_t>;
  EXPECT_THAT(script.copies, testing::ElementsAre(Copy{from, kPage}, Copy{from + kPage, kPage}));
  EXPECT_EQ(std::memcmp(buffer.data(), from, 2 * kPage), 0);
  EXPECT_EQ(engine->stats().staged_copies, 1U);
}

TEST(CopyEngine, UnpinsAndReleasesTheRingOfARestartedServer) {
  Script script;
  auto engine = engine_over(script);
  auto first = std::make_shared<Mapping>(2 * kPage);
  const auto second = std::make_shared<Mapping>(kPage);
  const auto third = std::make_shared<Mapping>(kPage);
  const std::weak_ptr<Mapping> mapped = first;
  engine->register_mapping(first->span(), first);
  engine->register_mapping(first->span(), first);
  EXPECT_EQ(script.pinned.size(), 1U) << "once per mapping, not per call";
  engine->register_mapping(second->span(), second);
  EXPECT_EQ(script.unpinned, 0U) << "two streams: both rings are in use";
  first.reset();
  EXPECT_FALSE(mapped.expired()) << "pinned memory stays mapped";
  engine->register_mapping(third->span(), third);
  EXPECT_EQ(script.unpinned, 1U);
  EXPECT_TRUE(mapped.expired());
  EXPECT_EQ(engine->stats().pinned_bytes, 2 * kPage);
}

TEST(CopyEngine, ReleasesMemoryThatOnlyItOwns) {
  Script script;
  auto engine = engine_over(script);
  auto mine = std::make_shared<Mapping>(kPage), gone = std::make_shared<Mapping>(2 * kPage);
  engine->register_mapping(mine->span(), mine);
  engine->register_mapping(gone->span(), gone);
  engine->release_orphans();
  EXPECT_EQ(engine->stats().pinned_bytes, 3 * kPage);
  gone.reset();
  engine->release_orphans();
  EXPECT_EQ(engine->stats().pinned_bytes, kPage);
  EXPECT_EQ(script.unpinned, 1U);
}

TEST(CopyEngine, LeavesTheRingReadOnlyForThisProcessAndPinsItAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto mapping = std::make_shared<Mapping>(kPage);
  for (int engines = 1; engines <= 2; ++engines) {
    Script script;
    auto engine = engine_over(script);
    engine->register_mapping(mapping->span(), mapping);
    EXPECT_EQ(script.pinned.size(), 1u);
    EXPECT_DEATH(mapping->span()[0] = std::byte{1}, "") << "pinned";
    engine.reset();
    EXPECT_DEATH(mapping->span()[0] = std::byte{1}, "") << "after engine " << engines;
  }
}

TEST(CopyEngine, ReportsAFailedCopyAndEndsItsLease) {
  const auto mapping = std::make_shared<Mapping>(kPage);
  Script script{.fail_copies = true};
  auto engine = engine_over(script);
  engine->register_mapping(mapping->span(), mapping);
  const auto buffer = engine->allocate(kPage).value();
  std::atomic<bool> ended = false;
  const Transfer transfer{mapping->span().data(), buffer.data(), kPage};
  const auto copy = engine->copy({&transfer, 1}, fake_lease(ended));
  ASSERT_FALSE(copy.has_value());
  EXPECT_THAT(copy.error().message, testing::HasSubstr("the device is gone"));
  EXPECT_TRUE(ended);
}

TEST(CopyEngine, EndsALeaseWhoseMarkCannotBeRecordedOnlyAfterItsBytesAreOut) {
  const auto mapping = std::make_shared<Mapping>(1024 * kPage);
  Script script{.fail_marks = true};
  auto engine = engine_over(script);
  const auto buffer = engine->allocate(mapping->span().size()).value();
  for (const bool pinned : {false, true}) {
    if (pinned) engine->register_mapping(mapping->span(), mapping);
    std::memset(buffer.data(), 0, buffer.size());
    bool whole_at_the_end = false;
    std::shared_ptr<const void> lease(mapping->span().data(), [&](const std::byte* source) {
      whole_at_the_end = std::memcmp(buffer.data(), source, buffer.size()) == 0;
    });
    const Transfer transfer{mapping->span().data(), buffer.data(), buffer.size()};
    const auto copy = engine->copy({&transfer, 1}, std::move(lease));
    ASSERT_FALSE(copy.has_value());
    EXPECT_THAT(copy.error().message, testing::HasSubstr("no event is left"));
    EXPECT_TRUE(whole_at_the_end) << "the copy still read the slot when its lease ended";
    EXPECT_EQ(std::memcmp(buffer.data(), mapping->span().data(), buffer.size()), 0);
  }
  EXPECT_EQ(script.synchronized, 2U);
}

TEST(CopyEngine, WaitsForCopiesUnderWayWhenItIsDestroyed) {
  const auto mapping = std::make_shared<Mapping>(64 * kPage);
  std::vector<std::byte> out(mapping->span().size());
  std::atomic<bool> ended = false;
  {
    auto engine = CopyEngine::open({.device = "host"}).value();
    engine->register_mapping(mapping->span(), mapping);
    const Transfer transfer{mapping->span().data(), out.data(), out.size()};
    ASSERT_TRUE(engine->copy({&transfer, 1}, fake_lease(ended)).has_value());
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(std::memcmp(out.data(), mapping->span().data(), out.size()), 0);
}

TEST(CopyEngine, RefusesDevicesItDoesNotKnow) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "tpu", ""}) {
    const auto engine = CopyEngine::open({.device = name});
    ASSERT_FALSE(engine.has_value()) << name;
    EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument) << name;
  }
}

TEST(CopyEngine, SaysWhyThereIsNoCudaDevice) {
  const auto engine = CopyEngine::open({.device = "cuda:999"});
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(engine.error().message, testing::HasSubstr("cuda"));
}

}  // namespace
}  // namespace headrace::gpu
