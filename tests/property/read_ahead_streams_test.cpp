// Reading ahead changes when samples are read, but no batch, and slow storage slows only its own stream.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/sampler/weighted.h"
#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"

namespace headrace::testing {
namespace {

using server::io::ReadAhead;
using server::io::ReadPool;
using server::sampler::SamplerPtr;
using SourcePtr = std::shared_ptr<const server::source::Source>;

constexpr std::uint64_t kSamples = 403;
constexpr std::uint32_t kBatch = 8;

/// Each read takes between nothing and two milliseconds, by the sample; some samples are bad.
class Uneven final : public ForwardingSource {
 public:
  Uneven() : ForwardingSource(server::source::make_synthetic(kSamples, 24).value()) {}
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    std::this_thread::sleep_for(std::chrono::microseconds(index * 7919 % 8 * 250));
    if (index % 41 == 3) return fail(ErrorCode::kBadSample, "too large");
    return ForwardingSource::read(index, out);
  }
};

/// No read returns before the gate is opened.
class Hanging final : public ForwardingSource {
 public:
  Hanging() : ForwardingSource(server::source::make_synthetic(kSamples, 24).value()) {}
  void open() {
    open_ = true;
    open_.notify_all();
  }
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    open_.wait(false);
    return ForwardingSource::read(index, out);
  }

 private:
  std::atomic<bool> open_{false};
};

SamplerPtr sampler_of(const std::string& kind) {
  if (kind == "sequential") return server::sampler::make_sequential(kSamples);
  if (kind == "shuffled") return server::sampler::make_shuffled(kSamples, 5);
  std::vector<double> weights(kSamples, 1);
  for (std::size_t i = 0; i < 10; ++i) weights[i] = 40;  // these come again and again
  return server::sampler::make_weighted(weights, kSamples, 5).value();
}

StreamSetup stream_over(const SourcePtr& source, const std::string& name, const std::string& kind,
                        Delivery delivery, const std::shared_ptr<ReadPool>& pool, std::uint64_t ahead = 64,
                        std::uint64_t bytes = 1'000'000) {
  StreamSetup setup = synthetic_stream(name, kSamples, kBatch, 2, delivery);
  std::shared_ptr<ReadAhead> reads;
  if (pool) {
    const std::uint64_t batches = server::publish::Ledger::slots_needed(setup.ledger) + 2;
    reads = std::make_shared<ReadAhead>(
        pool, source,
        ReadAhead::Options{.ahead = ahead, .samples = ahead + batches * kBatch, .bytes = bytes});
  }
  setup.maker =
      make_samples(source, {.seed = 5, .sampler = sampler_of(kind), .max_bad = 1, .read_ahead = reads});
  setup.info.fields = setup.maker->fields();
  return setup;
}

/// The digest of a client that reads `batches` batches from each position in turn.
std::uint64_t digest_of(RingClient& client, const std::vector<Cursor>& places, std::uint64_t batches) {
  Digest digest;
  for (const Cursor& place : places) {
    client.seek(place);
    digest.add_next(client, batches);
  }
  return digest.value();
}

/// Two clients at once over each of two streams of one source: the digests of all four.
std::vector<std::uint64_t> digests(const std::string& kind, Delivery delivery,
                                   const std::shared_ptr<ReadPool>& pool, std::uint64_t ahead,
                                   std::uint64_t bytes) {
  const SourcePtr source = std::make_shared<Uneven>();
  std::vector<StreamSetup> setups;
  for (const char* name : {"a", "b"})
    setups.push_back(stream_over(source, name, kind, delivery, pool, ahead, bytes));
  auto engine = start_engine(std::move(setups), 2);
  const std::uint32_t world = delivery == Delivery::kShard ? 2 : 1;
  std::vector<std::unique_ptr<RingClient>> clients;
  for (const char* name : {"a", "b"})
    for (std::uint32_t i = 0; i < 2; ++i)
      clients.push_back(
          std::make_unique<RingClient>(*engine, name, "c" + std::to_string(i), world == 1 ? 0 : i, world));
  std::vector<std::uint64_t> out(clients.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < clients.size(); ++i)
    threads.emplace_back([&, i] {
      out[i] = digest_of(*clients[i], {{0, 0, 0}, {1, 0, 9}, {0, 0, 20}}, 12 + 3 * (i % 2));
      clients[i]->leave();
    });
  for (auto& thread : threads) thread.join();
  if (pool) {
    for (std::size_t i = 0; i < 2; ++i) {
      const ReadAhead& reads = *engine->stream(i).maker().read_ahead();
      const auto kept = [&] {
        const auto counts = reads.counts();
        return counts.queued + counts.reading + counts.read_samples;
      };
      // No client wants them any more; the started batches are still made.
      for (int wait = 0; wait < 2000 && kept() > 0; ++wait)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(kept(), 0U);
      const auto counts = reads.counts();
      EXPECT_EQ(counts.dropped, 0U);
      EXPECT_GT(counts.hits + counts.waits, counts.misses) << "replacements alone are not expected";
    }
  }
  return out;
}

class ReadAheadStreams : public ::testing::TestWithParam<std::pair<const char*, Delivery>> {};

TEST_P(ReadAheadStreams, HaveTheSameBatchesAsWithout) {
  const auto& [kind, delivery] = GetParam();
  const auto expected = digests(kind, delivery, nullptr, 0, 0);
  EXPECT_EQ(digests(kind, delivery, std::make_shared<ReadPool>("set", 16), 64, 1'000'000), expected);
  EXPECT_EQ(digests(kind, delivery, std::make_shared<ReadPool>("set", 1), 1, 1'000'000), expected);
  EXPECT_EQ(digests(kind, delivery, std::make_shared<ReadPool>("set", 3), 500, 200), expected)
      << "with room for eight samples";
}

INSTANTIATE_TEST_SUITE_P(
    All, ReadAheadStreams,
    ::testing::Values(std::pair("shuffled", Delivery::kBroadcast), std::pair("shuffled", Delivery::kShard),
                      std::pair("sequential", Delivery::kBroadcast),
                      std::pair("sequential", Delivery::kShard), std::pair("weighted", Delivery::kBroadcast),
                      std::pair("weighted", Delivery::kShard)),
    [](const auto& one) {
      return std::string(one.param.first) + (one.param.second == Delivery::kShard ? "Shard" : "Broadcast");
    });

TEST(SlowStorage, TakesNoWorkerFromOtherStreams) {
  const auto hanging = std::make_shared<Hanging>();
  std::vector<StreamSetup> setups;
  setups.push_back(
      stream_over(hanging, "slow", "shuffled", Delivery::kBroadcast, std::make_shared<ReadPool>("set", 4)));
  setups.push_back(synthetic_stream("well", 500, 8, 2));
  auto engine = start_engine(std::move(setups), 1);
  const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { hanging->open(); });
  RingClient slow(*engine, "slow", "s"), well(*engine, "well", "w");
  for (int i = 0; i < 200; ++i) {
    const auto grant = well.next();
    ASSERT_TRUE(grant) << "the only worker waits for storage, at batch " << i;
    well.reader().ack(*grant);
  }
  EXPECT_FALSE(slow.next(std::chrono::milliseconds(1)));
  hanging->open();
  for (int i = 0; i < 60; ++i) {
    const auto grant = slow.next();
    ASSERT_TRUE(grant);
    slow.reader().ack(*grant);
  }
}

TEST(SlowStorage, KeepsReadingAheadOfAClientThatPauses) {
  const SourcePtr source = server::source::make_synthetic(kSamples, 24).value();
  std::vector<StreamSetup> setups;
  setups.push_back(
      stream_over(source, "s", "shuffled", Delivery::kBroadcast, std::make_shared<ReadPool>("set", 4), 64));
  auto engine = start_engine(std::move(setups), 1);
  RingClient client(*engine, "s", "c");
  ASSERT_TRUE(client.next());
  const ReadAhead& reads = *engine->stream(0).maker().read_ahead();
  // While the ring fills, the batches in progress are added to it, so check the final number.
  std::uint64_t read = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int same = 0; same < 50 && std::chrono::steady_clock::now() < until; ++same) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t now = reads.counts().read_samples;
    if (now < 64 || now != read) same = 0;
    read = now;
  }
  EXPECT_EQ(read, 64U);
  client.leave();
  EXPECT_EQ(reads.counts().read_samples, 0U) << "its expectations are dropped";
}

}  // namespace
}  // namespace headrace::testing
