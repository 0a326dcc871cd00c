// Promise 1: a stream is a pure function, which does not depend on threads, clients, speed or restarts.
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <set>
#include <thread>

#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"

namespace headrace::testing {
namespace {

constexpr std::uint64_t kSamples = 1003;
constexpr std::uint32_t kBatch = 16;
constexpr int kBatches = 63 * 2;  // two epochs: ceil(1003 / 16) = 63

std::uint64_t digest_of_two_epochs(RingClient& client, std::uint64_t dawdle_seed = 0) {
  std::mt19937 random(static_cast<unsigned>(dawdle_seed));
  Digest digest;
  digest.add_next(client, kBatches, [&] {
    if (dawdle_seed && random() % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  });
  return digest.value();
}

std::uint64_t reference() {
  auto engine = start_engine({synthetic_stream("s", kSamples, kBatch, 4)}, 1);
  RingClient client(*engine, "s", "reference");
  return digest_of_two_epochs(client);
}

TEST(Engine, GivesTheSameBatchesWithOneToEightWorkers) {
  const std::uint64_t expected = reference();
  for (const unsigned threads : {1U, 2U, 3U, 5U, 8U}) {
    auto engine = start_engine({synthetic_stream("s", kSamples, kBatch, 4)}, threads);
    RingClient client(*engine, "s", "one");
    EXPECT_EQ(digest_of_two_epochs(client), expected) << threads << " workers";
  }
}

TEST(Engine, GivesEachOfFourBroadcastClientsOfDifferentSpeedsTheSameBatches) {
  const std::uint64_t expected = reference();
  for (const bool detach : {true, false}) {
    StreamSetup setup = synthetic_stream("s", kSamples, kBatch, 4);
    setup.ledger.detach = detach;
    auto engine = start_engine({std::move(setup)}, 2);
    std::vector<std::unique_ptr<RingClient>> clients;
    for (int i = 0; i < 4; ++i)
      clients.push_back(std::make_unique<RingClient>(*engine, "s", "c" + std::to_string(i)));
    std::vector<std::uint64_t> digests(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        digests[i] = digest_of_two_epochs(*clients[i], i);
        clients[i]->leave();  // so that a finished client does not hold the others back
      });
    for (auto& thread : threads) thread.join();
    for (const std::uint64_t digest : digests) EXPECT_EQ(digest, expected) << (detach ? "detach" : "wait");
  }
}

TEST(Engine, BuildsABatchOnceForBroadcastClientsInStep) {
  StreamSetup setup = synthetic_stream("s", kSamples, kBatch, 4);
  setup.ledger.detach = false;
  setup.wait_for = 3;
  setup.wait_timeout = std::chrono::seconds(60);
  auto engine = start_engine({std::move(setup)}, 2);
  std::vector<std::unique_ptr<RingClient>> clients;
  for (int i = 0; i < 3; ++i)
    clients.push_back(std::make_unique<RingClient>(*engine, "s", "c" + std::to_string(i)));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      digest_of_two_epochs(*clients[i], i);
      clients[i]->leave();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(engine->totals(0).batches, kBatches + 7U)
      << "126 batches and at most a ring's look-ahead, not three times that";
}

TEST(Engine, ContinuesFromACursorWithTheBatchesThatWouldHaveComeNext) {
  auto engine = start_engine({synthetic_stream("s", kSamples, kBatch, 4)}, 2);
  RingClient whole(*engine, "s", "whole"), late(*engine, "s", "late");
  for (const std::uint64_t at : {0UL, 1UL, 17UL, 62UL}) {
    whole.seek({0, 0, 0});
    late.seek({0, 0, at});
    Digest expected, seen;
    for (std::uint64_t i = 0; i < 70; ++i) {
      const auto grant = whole.next();
      ASSERT_TRUE(grant);
      if (i >= at) expected.add_batch(whole.reader(), *grant);
      whole.reader().ack(*grant);
    }
    for (std::uint64_t i = at; i < 70; ++i) {
      const auto grant = late.next();
      ASSERT_TRUE(grant);
      seen.add_batch(late.reader(), *grant);
      late.reader().ack(*grant);
    }
    EXPECT_EQ(seen.value(), expected.value()) << "from batch " << at;
  }
}

TEST(Engine, BuildsOnlyTheBatchesOfAttachedRanks) {
  // Two servers share a job of eight ranks: four each.
  std::set<std::uint64_t> seen;
  for (const std::uint32_t first : {0U, 4U}) {
    auto engine = start_engine({synthetic_stream("s", 800, 10, 4, Delivery::kShard)}, 2);
    std::vector<std::unique_ptr<RingClient>> ranks;
    for (std::uint32_t r = first; r < first + 4; ++r)
      ranks.push_back(std::make_unique<RingClient>(*engine, "s", "r" + std::to_string(r), r, 8));
    for (auto& rank : ranks) {
      EXPECT_EQ(rank->opened().epoch_length, 10U);
      for (int i = 0; i < 10; ++i) {
        const auto grant = rank->next();
        ASSERT_TRUE(grant);
        const ring::SlotDesc& slot = rank->reader().slot(grant->slot);
        for (std::uint32_t row = 0; row < slot.valid_rows; ++row)
          EXPECT_TRUE(seen.insert(rank->reader().rows(grant->slot)[row].sample_index).second)
              << "a sample twice";
        rank->reader().ack(*grant);
      }
    }
    const auto started = engine->stream(0).status().started_by_rank();
    ASSERT_LE(started.size(), 8U);
    for (std::uint32_t r = 0; r < 8; ++r) {
      const bool here = r >= first && r < first + 4;
      EXPECT_EQ(r < started.size() && started[r] > 0, here)
          << "rank " << r << " at the server of ranks " << first;
    }
  }
  EXPECT_EQ(seen.size(), 800U) << "each sample exactly once over both servers";
}

TEST(Engine, KeepsASlowRankFromFillingTheOthersSlots) {
  auto engine = start_engine({synthetic_stream("s", 4000, 10, 2, Delivery::kShard)}, 2);
  RingClient fast(*engine, "s", "fast", 0, 2), stuck(*engine, "s", "stuck", 1, 2);
  for (int i = 0; i < 500; ++i) {
    const auto grant = fast.next();
    ASSERT_TRUE(grant) << "starved at batch " << i;
    fast.reader().ack(*grant);
  }
  engine->inspect(0, [&](const Stream& s) {
    EXPECT_LE(s.lanes().ledger().leases(stuck.opened().lane), 3U);
    return 0;
  });
  EXPECT_LE(engine->stream(0).status().started_by_rank().at(1), 7U) << "max_leases + prefetch, no more";
}

TEST(Engine, ServesTwoStreamsWithOnePool) {
  auto engine = start_engine({synthetic_stream("train", 500, 8, 2), synthetic_stream("val", 90, 8, 2)}, 2);
  RingClient train(*engine, "train", "t"), val(*engine, "val", "v");
  for (int i = 0; i < 200; ++i)
    for (RingClient* client : {&train, &val}) {
      const auto grant = client->next();
      ASSERT_TRUE(grant);
      client->reader().ack(*grant);
    }
}

/// A source in which one read hangs.
class Hanging final : public ForwardingSource {
 public:
  Hanging(std::uint64_t count, std::uint64_t bytes)
      : ForwardingSource(server::source::make_synthetic(count, bytes).value()) {}
  void hang_once() const { hang_ = true; }
  void go_on() const {
    may_go_ = true;
    may_go_.notify_all();
  }
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    if (hang_.exchange(false)) may_go_.wait(false);
    return ForwardingSource::read(index, out);
  }

 private:
  mutable std::atomic<bool> hang_{false}, may_go_{false};
};

/// Its jobs were short, so no client rings the doorbell for the worker that does not return.
TEST(Engine, ServesAStreamWithTheWorkersThatAreLeftWhenABriefReadHangs) {
  const auto hanging = std::make_shared<Hanging>(500, 24);
  StreamSetup setup = synthetic_stream("hangs", 500, 8, 2);
  setup.maker = make_samples(hanging, {});
  auto engine = start_engine({std::move(setup), synthetic_stream("well", 500, 8, 2)}, 2);
  RingClient ill(*engine, "hangs", "i"), well(*engine, "well", "w");
  const auto take = [](RingClient& client, std::chrono::milliseconds patience) {
    const auto grant = client.next(patience);
    if (grant) client.reader().ack(*grant);
    return grant.has_value();
  };
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(take(ill, std::chrono::seconds(20)));
    ASSERT_TRUE(take(well, std::chrono::seconds(20)));
  }
  const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { hanging->go_on(); });
  hanging->hang_once();
  while (take(ill, std::chrono::milliseconds(50))) continue;  // batches made before; then a worker hangs
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(take(well, std::chrono::milliseconds(400))) << "starved at batch " << i;
    if (i % 30 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the other one falls asleep
  }
  hanging->go_on();
  EXPECT_TRUE(take(ill, std::chrono::seconds(20)));
}

TEST(Engine, CostsNextToNoCpuWhileItsClientsPause) {
  auto engine = start_engine({synthetic_stream("s", 500, 8, 2)}, 4);
  RingClient client(*engine, "s", "c");
  ASSERT_TRUE(client.next());
  EXPECT_TRUE(comes_to_rest()) << "an idle engine spins";
}

/// A source that announces 23 and gives 24.
class Fibbing final : public ForwardingSource {
 public:
  Fibbing() : ForwardingSource(server::source::make_synthetic(500, 24).value()) {}
  [[nodiscard]] const std::vector<server::source::SourceField>& fields() const override { return fields_; }

 private:
  const std::vector<server::source::SourceField> fields_{
      {.name = "data", .content = server::source::Content::kValues, .shape = {23}}};
};

TEST(Engine, StopsAStreamByNameWhoseSourceGivesOtherRowsThanItSays) {
  StreamSetup setup = synthetic_stream("s", 500, 8, 2);
  setup.maker = make_samples(std::make_shared<Fibbing>(), {});
  setup.info.fields = setup.maker->fields();
  auto engine = start_engine({std::move(setup)}, 2);
  RingClient client(*engine, "s", "c");
  EXPECT_FALSE(client.next(std::chrono::seconds(5)));
  EXPECT_TRUE(client.reader().lane_state() & ring::kLaneFailed);
  EXPECT_TRUE(engine->stream(0).failed());
  EXPECT_NE(engine->stream(0).failure().message.find("DATASET_INVALID"), std::string::npos);
}

/// Idle workers make tiles only if no batch is open: a batch that is never finished would prevent that.
TEST(Stream, ThatStoppedFillsNothing) {
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(Stream::create(synthetic_stream("s", 1000, 4, 1)).value());
  Engine engine(std::move(streams), 1);  // not started: this test is its worker
  RingClient client(engine, "s", "c");
  engine.with(0, [&](Stream& stream) {
    EXPECT_FALSE(stream.filling());
    ASSERT_TRUE(stream.next_job(1));
    EXPECT_TRUE(stream.filling());
    stream.stop({ErrorCode::kInternal, "for a test"});
    stream.pump(1);
    EXPECT_FALSE(stream.filling());
  });
  EXPECT_TRUE(client.reader().lane_state() & ring::kLaneFailed);
}

TEST(Stream, OwesWakesToTheClientsThatWereGrantedABatchInTheirSleep) {
  StreamSetup setup = synthetic_stream("s", 1000, 4, 3);
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(Stream::create(std::move(setup)).value());
  Engine engine(std::move(streams), 1);  // not started: this test is its worker
  RingClient awake(engine, "s", "awake"), asleep(engine, "s", "asleep"), sleepier(engine, "s", "late");
  server::exec::RowScratch scratch;
  server::metrics::StreamCounters counters;
  const auto fill_one = [&](Stream& stream) {
    const auto job = stream.next_job(1);
    ASSERT_TRUE(job);
    ASSERT_TRUE(job->work(scratch, counters, ~std::uint64_t{0}));
    stream.complete(*job, counters);
  };
  asleep.reader().lease().waiting = 1;
  sleepier.reader().lease().waiting = 1;
  engine.with(0, [&](Stream& stream) {
    EXPECT_EQ(stream.lanes().take_wakes(), 0u) << "nothing was granted yet";
    fill_one(stream);
    stream.pump(1);
    EXPECT_EQ(stream.lanes().take_wakes(), 0b110u);
    EXPECT_EQ(stream.lanes().take_wakes(), 0u) << "take_wakes() clears the wakes";
    asleep.reader().lease().waiting = 0;
    fill_one(stream);
    stream.pump(1);
    EXPECT_EQ(stream.lanes().take_wakes(), 0b100u);
  });
}

/// A client may end while its batch is made, and the next one of its lane may be of another rank.
TEST(Stream, GivesARankNoBatchThatWasBegunForAnother) {
  std::vector<std::unique_ptr<Stream>> streams;
  streams.push_back(Stream::create(synthetic_stream("s", 1000, 4, 1, Delivery::kShard)).value());
  Engine engine(std::move(streams), 1);  // not started: this test is its worker
  server::exec::RowScratch scratch;
  server::metrics::StreamCounters counters;
  const auto make_one = [&] {
    const auto job = engine.with(0, [](Stream& stream) { return stream.next_job(1); });
    EXPECT_TRUE(job && job->work(scratch, counters, ~std::uint64_t{0}));
    return job;
  };
  const auto complete = [&](server::exec::FillJob& job) {
    engine.with(0, [&](Stream& stream) { return stream.complete(job, counters), stream.pump(1); });
  };
  std::shared_ptr<server::exec::FillJob> former;
  {
    const RingClient first(engine, "s", "first", 0, 2);
    former = make_one();
  }
  RingClient second(engine, "s", "second", 1, 2);
  ASSERT_EQ(second.opened().lane, 0U);
  const auto own = make_one();
  complete(*former);
  EXPECT_FALSE(second.next(std::chrono::milliseconds(0))) << "the batch of rank 0";
  complete(*own);
  const auto grant = second.next(std::chrono::milliseconds(0));
  ASSERT_TRUE(grant);
  EXPECT_EQ(second.reader().slot(grant->slot).position, 4U);
}

/// A worker that finds no job sleeps, so a second search must not find one either.
TEST(Stream, FindsEveryJobThereIsBeforeItsWorkersSleep) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
    StreamSetup setup = synthetic_stream("s", 1000, 4, 2 + pick(3));
    setup.ledger.max_leases = 1 + pick(3);
    setup.ledger.prefetch = 1 + pick(6);
    setup.ledger.max_lag = 1 + pick(setup.ledger.prefetch);
    const std::uint32_t lanes = setup.ledger.lanes;
    std::vector<std::unique_ptr<Stream>> streams;
    streams.push_back(Stream::create(std::move(setup)).value());
    Engine engine(std::move(streams), 1);  // not started: this test is its worker
    server::exec::RowScratch scratch;
    server::metrics::StreamCounters counters;
    const auto one_look = [&] {
      return engine.with(0, [&](Stream& stream) {
        stream.pump(1);
        const auto job = stream.next_job(1);
        if (job && job->work(scratch, counters, ~std::uint64_t{0})) stream.complete(*job, counters);
        return job != nullptr;
      });
    };
    std::vector<std::unique_ptr<RingClient>> clients;
    for (std::uint32_t i = 0; i < lanes; ++i)
      clients.push_back(std::make_unique<RingClient>(engine, "s", "c" + std::to_string(i)));
    std::vector<bool> stopped(lanes);
    for (int step = 0; step < 400; ++step) {
      const std::uint32_t who = pick(lanes);
      if (pick(40) == 0) stopped[who] = !stopped[who];
      if (pick(60) == 0) clients[who]->seek({pick(2), 0, pick(200)});
      if (!stopped[who])
        if (const auto grant = clients[who]->next(std::chrono::milliseconds(0)))
          clients[who]->reader().ack(*grant);
      while (one_look()) continue;
      ASSERT_FALSE(one_look()) << "seed " << seed << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace headrace::testing
