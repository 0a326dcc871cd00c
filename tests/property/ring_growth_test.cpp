// A ring has memory for the clients that were attached at once, not for those that may come.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine_fixture.h"

namespace headrace::testing {
namespace {

constexpr std::uint64_t kSamples = 1003;
constexpr std::uint32_t kBatch = 16;
constexpr std::size_t kRowBytes = 20'000;

StreamSetup stream_of(std::uint32_t clients, Delivery delivery = Delivery::kBroadcast) {
  return synthetic_stream("s", kSamples, kBatch, clients, delivery, kRowBytes);
}

std::uint64_t bytes_with(const StreamSetup& setup, std::uint32_t clients) {
  return ring::RingWriter::bytes_needed(server::exec::ring_options(setup, clients)).value();
}

std::uint64_t digest_of(RingClient& client, std::uint64_t batches) {
  Digest digest;
  digest.add_next(client, batches);
  return digest.value();
}

TEST(RingGrowth, AddsSlotsForEachFurtherClientAndKeepsThem) {
  const StreamSetup setup = stream_of(4);
  const std::uint64_t further = bytes_with(setup, 4) - bytes_with(setup, 3);
  auto engine = start_engine({stream_of(4)}, 2);
  const std::uint64_t first = engine->stream(0).ring_bytes();
  std::vector<std::unique_ptr<RingClient>> clients;
  std::vector<std::uint64_t> digests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    // The earlier clients hold batches in slots that exist meanwhile.
    clients.push_back(std::make_unique<RingClient>(*engine, "s", "c" + std::to_string(i)));
    EXPECT_NEAR(static_cast<double>(engine->stream(0).ring_bytes()), static_cast<double>(first + i * further),
                4096)
        << i;
    clients.back()->seek({0, 0, 0});
    digests.push_back(digest_of(*clients.back(), 70));
    EXPECT_EQ(digests.back(), digests.front()) << i;
  }
  const std::uint64_t all = engine->stream(0).ring_bytes();
  clients.erase(clients.begin(), clients.begin() + 3);
  RingClient again(*engine, "s", "again");
  EXPECT_EQ(engine->stream(0).ring_bytes(), all) << "slots are kept for the next clients";
  again.seek({0, 0, 0});
  EXPECT_EQ(digest_of(again, 70), digests.front());
}

TEST(RingGrowth, GivesEachRankOfAShardStreamSlots) {
  auto engine = start_engine({stream_of(3, Delivery::kShard)}, 2);
  std::vector<std::unique_ptr<RingClient>> ranks;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    ranks.push_back(std::make_unique<RingClient>(*engine, "s", "r" + std::to_string(rank), rank, 3));
  for (int i = 0; i < 30; ++i)
    for (auto& rank : ranks) {
      const auto grant = rank->next();
      ASSERT_TRUE(grant) << i;
      rank->reader().ack(*grant);
    }
  EXPECT_EQ(engine->stream(0).ring_bytes(), bytes_with(stream_of(3, Delivery::kShard), 3));
}

TEST(RingGrowth, RefusesAClientForWhichThereIsNoMemoryAndServesTheOthers) {
  // One slot is a fiftieth of the free memory, and each of the 64 clients needs one.
  const std::uint64_t free = ring::memory_headroom().bytes;
  if (free > std::uint64_t{200} << 30) GTEST_SKIP() << "a slot of a fiftieth would take long to allocate";
  StreamSetup setup = synthetic_stream("s", 100, 8, 64, Delivery::kBroadcast, free / 50 / 8);
  setup.ledger.prefetch = setup.ledger.max_lag = 0;
  setup.ledger.max_leases = 1;
  auto engine = start_engine({std::move(setup)}, 2);
  RingClient first(*engine, "s", "first");
  EXPECT_NE(digest_of(first, 2), 0U);
  const std::uint64_t bytes = engine->stream(0).ring_bytes();
  const auto refused = engine->stream(0).make_room(64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotEnoughMemory);
  for (const char* part : {"stream `s`", "client 64 of at most 64", "GB more", "ring.max_leases"})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  EXPECT_EQ(engine->stream(0).ring_bytes(), bytes);
  EXPECT_NE(digest_of(first, 2), 0U);
  RingClient second(*engine, "s", "second");
  EXPECT_NE(digest_of(second, 2), 0U);
}

TEST(RingGrowth, MakesSlotsNoLargerThanAnEpoch) {
  StreamSetup setup = stream_of(1);
  const std::uint64_t whole = bytes_with(setup, 1);
  setup.info.samples = 4;
  EXPECT_LT(bytes_with(setup, 1), whole / 3);
  setup.info.last = LastBatch::kPad;  // a padded batch has all rows
  EXPECT_EQ(bytes_with(setup, 1), whole);
}

}  // namespace
}  // namespace headrace::testing
