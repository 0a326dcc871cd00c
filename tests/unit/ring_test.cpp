#include <poll.h>
#include <sys/stat.h>

#include <thread>

#include "tests/unit/ring_harness.h"

namespace headrace::ring::testing {
namespace {

TEST(Ring, CarriesAPublishedBatchToTheReader) {
  auto ring = make_ring(2, 1);
  auto reader = attach(*ring, 0);
  fill_and_publish(*ring, 1, 3, 17);
  ring->grant(0, 1, 0);

  const auto grant = reader->next(0, 1s, 0ns, nullptr);
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->slot, 1U);
  EXPECT_EQ(grant->epoch, 3U);
  EXPECT_EQ(grant->batch, 17U);
  EXPECT_EQ(wrong_words(*reader, *grant), 0U);
  const SlotDesc& desc = reader->slot(1);
  EXPECT_EQ(desc.position, 68U);
  EXPECT_EQ(desc.rows, 4U);
  EXPECT_EQ(desc.valid_rows, 4U);
  EXPECT_EQ(desc.payload_bytes, 4U * 192 + 4 * 8 + 8 * 16);
  EXPECT_EQ(reader->rows(1)[2].sample_index, 70U);
  EXPECT_EQ(reader->offsets(1, 2)[4], 8);
  EXPECT_EQ(reader->fields(), small_ring(2, 1).fields);
  EXPECT_EQ(reader->row_capacity(), 4U);
  EXPECT_EQ(reader->instance(), ring->instance());
}

TEST(Ring, ReturnsAcksInTheOrderTheyWereGivenAndOnlyOnce) {
  auto ring = make_ring(3, 1);
  auto reader = attach(*ring, 0);
  std::vector<Grant> held;
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    fill_and_publish(*ring, slot, 0, slot);
    ring->grant(0, slot, 0);
    held.push_back(*reader->next(0, 1s, 0ns, nullptr));
  }
  EXPECT_FALSE(ring->has_acks(0));
  for (const std::size_t i : {2, 0, 1}) reader->ack(held[i]);
  EXPECT_TRUE(ring->has_acks(0));
  std::vector<TakenAck> acks;
  ASSERT_TRUE(ring->take_acks(0, acks));
  ASSERT_EQ(acks.size(), 3U);
  EXPECT_EQ(acks[0].slot, 2U);
  EXPECT_EQ(acks[1].slot, 0U);
  EXPECT_EQ(acks[2].slot, 1U);
  EXPECT_EQ(acks[0].generation, held[2].generation);
  EXPECT_FALSE(ring->has_acks(0));
}

TEST(Ring, AcksGrantsFromBeforeASeekUnseen) {
  auto ring = make_ring(3, 1);
  auto reader = attach(*ring, 0);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    fill_and_publish(*ring, slot, 0, slot);
    ring->grant(0, slot, slot == 2 ? 8 : 7);
  }
  const auto grant = reader->next(8, 1s, 0ns, nullptr);
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->slot, 2U);
  std::vector<TakenAck> acks;
  ASSERT_TRUE(ring->take_acks(0, acks));
  ASSERT_EQ(acks.size(), 2U);
  EXPECT_EQ(acks[1].slot, 1U);
}

TEST(Ring, NeverGivesAGenerationTwice) {
  auto ring = make_ring(2, 1);
  std::uint64_t last = 0;
  for (int i = 0; i < 6; ++i) {
    LoanedSlot loaned = ring->loan(static_cast<std::uint32_t>(i % 2));
    EXPECT_GT(loaned.generation(), last);
    last = loaned.generation();
    ring->abandon(std::move(loaned));
  }
  EXPECT_EQ(ring->state(0), SlotState::kFree);
}

TEST(Ring, ReturnsNothingAtTheTimeoutAndOnAnInterrupt) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  EXPECT_FALSE(reader->next(0, 1ms, 0ns, nullptr).has_value());
  EXPECT_EQ(reader->lane_state(), kLaneOpen);
  std::atomic<bool> interrupt{false};
  std::thread other([&] {
    std::this_thread::sleep_for(5ms);
    interrupt = true;
    reader->wake();
  });
  EXPECT_FALSE(reader->next(0, 1h, 0ns, &interrupt).has_value());
  other.join();
}

TEST(Ring, WakesASleepingReader) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  std::thread server([&] {
    while (reader->lease().waiting.load() == 0) std::this_thread::yield();
    fill_and_publish(*ring, 0, 0, 5);
    ring->grant(0, 0, 0);
  });
  const auto grant = reader->next(0, 1h, 0ns, nullptr);
  server.join();
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->batch, 5U);
}

TEST(Ring, OwesAWakeToASleepingReaderAlone) {
  auto ring = make_ring(2, 1);
  auto reader = attach(*ring, 0);
  fill_and_publish(*ring, 0, 0, 5);
  EXPECT_FALSE(ring->write_grant(0, 0, 0)) << "the reader has not checked yet";
  EXPECT_EQ(reader->next(0, 1h, 0ns, nullptr)->batch, 5U);
  bool owed = false;
  std::thread server([&] {
    while (reader->lease().waiting.load() == 0) std::this_thread::yield();
    fill_and_publish(*ring, 1, 0, 6);
    owed = ring->write_grant(0, 1, 0);
    ring->wake(0);
  });
  const auto grant = reader->next(0, 1h, 0ns, nullptr);
  server.join();
  EXPECT_TRUE(owed);
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->batch, 6U);
}

TEST(Ring, RecoversFromAWakeThatNeverCame) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  std::thread server([&] {
    while (reader->lease().waiting.load() == 0) std::this_thread::yield();
    reader->lease().waiting.store(0);  // the server now believes that the client does not sleep
    fill_and_publish(*ring, 0, 0, 5);
    ring->grant(0, 0, 0);
  });
  EXPECT_TRUE(reader->next(0, 1h, 0ns, nullptr).has_value());
  server.join();
}

TEST(Ring, RingsTheDoorbellOnlyWhenTheServerSleeps) {
  auto ring = make_ring(2, 1);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto reader = attach(*ring, 0, doorbell.get());
  const auto one_batch = [&](std::uint32_t slot) {
    fill_and_publish(*ring, slot, 0, slot);
    ring->grant(0, slot, 0);
    reader->ack(*reader->next(0, 1s, 0ns, nullptr));
  };
  std::uint64_t rung = 0;
  one_batch(0);
  EXPECT_LT(::read(doorbell.get(), &rung, sizeof rung), 0);
  ring->set_idle(kServerRests);
  one_batch(1);
  EXPECT_EQ(::read(doorbell.get(), &rung, sizeof rung), 8);
  EXPECT_EQ(rung, 1U);
}

TEST(Ring, RingsAServerThatIsHalfAwakeBeforeItSleepsItself) {
  auto ring = make_ring(2, 1);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto reader = attach(*ring, 0, doorbell.get());
  ring->set_idle(kServerHalfAwake);
  fill_and_publish(*ring, 0, 0, 0);
  ring->grant(0, 0, 0);
  reader->ack(*reader->next(0, 1s, 0ns, nullptr));
  std::uint64_t rung = 0;
  EXPECT_LT(::read(doorbell.get(), &rung, sizeof rung), 0) << "an awake worker reads the ack";
  EXPECT_FALSE(reader->next(0, 1ms, 0ns, nullptr).has_value());
  EXPECT_EQ(::read(doorbell.get(), &rung, sizeof rung), 8);
}

TEST(SpinBudget, SpinsWhereThatWasEnoughLatelyAndElseTriesItNowAndThen) {
  SpinBudget budget;
  EXPECT_GT(budget.ns(), 0u);
  const auto spins_of_640 = [&](std::uint64_t wait_ns, std::uint64_t wake_ns) {
    int spins = 0;
    for (int i = 0; i < 640; ++i) {
      const bool spun_through = wait_ns <= budget.ns();
      spins += budget.ns() > 0 ? 1 : 0;
      budget.waited(spun_through ? wait_ns : wait_ns + wake_ns);
    }
    return spins;
  };
  EXPECT_LE(spins_of_640(40'000'000, 20'000), 20);
  EXPECT_GE(spins_of_640(3'000, 20'000), 560) << "the wake's time must not keep it from spinning again";
  EXPECT_LE(spins_of_640(30'000, 20'000), 20);
}

TEST(Ring, StillDeliversWhatWasGrantedBeforeDrainingThenReportsIt) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  fill_and_publish(*ring, 0, 0, 0);
  ring->grant(0, 0, 0);
  ring->set_lane_state(0, kLaneDraining);
  EXPECT_TRUE(reader->next(0, 1s, 0ns, nullptr).has_value());
  EXPECT_FALSE(reader->next(0, 1h, 0ns, nullptr).has_value());
  EXPECT_EQ(reader->lane_state(), kLaneOpen | kLaneDraining);
}

TEST(Ring, GivesNothingMoreOnceFenced) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  fill_and_publish(*ring, 0, 0, 0);
  ring->grant(0, 0, 0);
  ring->set_lane_state(0, kLaneFenced);
  EXPECT_FALSE(reader->next(0, 1h, 0ns, nullptr).has_value());
  EXPECT_NE(reader->lane_state() & kLaneFenced, 0U);
}

TEST(Ring, FencesAReaderWhoseLaneWasGivenToAnother) {
  auto ring = make_ring(2, 1);
  auto first = attach(*ring, 0);
  ring->detach(0);
  EXPECT_NE(first->lane_state() & kLaneFenced, 0U);
  auto second = attach(*ring, 0);
  fill_and_publish(*ring, 0, 0, 9);
  ring->grant(0, 0, 0);
  EXPECT_FALSE(first->next(0, 1h, 0ns, nullptr).has_value());
  EXPECT_NE(first->lane_state() & kLaneFenced, 0U);
  const auto grant = second->next(0, 1s, 0ns, nullptr);
  ASSERT_TRUE(grant.has_value());
  first->ack(*grant);
  EXPECT_FALSE(ring->has_acks(0)) << "an ack of the old client must not reach the new one's lane";
}

TEST(Ring, CountsTheGrantsThatWaitAndNoneOfASuccessor) {
  auto ring = make_ring(3, 1);
  auto first = attach(*ring, 0);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    fill_and_publish(*ring, slot, 0, slot);
    ring->grant(0, slot, slot == 2 ? 8 : 7);
  }
  EXPECT_EQ(first->ready(7), 2U);
  EXPECT_EQ(first->ready(8), 1U);
  ASSERT_TRUE(first->next(7, 1s, 0ns, nullptr).has_value());
  EXPECT_EQ(first->ready(7), 1U);
  ring->detach(0);
  auto second = attach(*ring, 0);  // its count begins at 0 again, below the count that `first` has read
  EXPECT_EQ(first->ready(7), 0U);
  EXPECT_EQ(second->ready(7), 0U);
}

TEST(Ring, ReportsGarbageInALeaseSegmentAsBadMessage) {
  for (const std::uint32_t count : {std::uint32_t{kGrantRing + 1}, 0xFFFFFFFFU}) {
    auto ring = make_ring(1, 1);
    auto reader = attach(*ring, 0);
    reader->lease().acked.store(count);
    std::vector<TakenAck> acks;
    const auto taken = ring->take_acks(0, acks);
    ASSERT_FALSE(taken.has_value());
    EXPECT_EQ(taken.error().code, ErrorCode::kBadMessage);
    EXPECT_TRUE(acks.empty());
  }
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  reader->ack(Grant{.generation = 1, .epoch = 0, .batch = 0, .slot = 1, .seek = 0});
  std::vector<TakenAck> acks;
  const auto taken = ring->take_acks(0, acks);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, ErrorCode::kBadMessage);
}

TEST(Ring, SurvivesTheWrapOfItsCounters) {
  auto ring = make_ring(2, 1);
  auto reader = attach(*ring, 0);
  std::vector<TakenAck> acks;
  for (std::uint64_t batch = 0; batch < 3 * kGrantRing; ++batch) {
    const auto slot = static_cast<std::uint32_t>(batch % 2);
    fill_and_publish(*ring, slot, 0, batch);
    ring->grant(0, slot, 0);
    const auto grant = reader->next(0, 1s, 0ns, nullptr);
    ASSERT_TRUE(grant && grant->batch == batch);
    reader->ack(*grant);
    acks.clear();
    ASSERT_TRUE(ring->take_acks(0, acks));
    ASSERT_EQ(acks.size(), 1U);
    ring->release(slot);
  }
}

TEST(Ring, ShowsTheClientsStatementsToTheServer) {
  auto ring = make_ring(1, 2);
  auto reader = attach(*ring, 1);
  EXPECT_FALSE(ring->client_report(0).has_value());
  reader->lease().wait_ns.store(12);
  const auto word = ring->client_report(1);
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->wait_ns, 12U);
  EXPECT_EQ(word->consumed, std::nullopt) << "nothing was committed yet, which is not (0, 0, 0)";
  reader->commit({0, 0, 0});
  EXPECT_EQ(ring->client_report(1)->consumed, (Cursor{0, 0, 0}));
  reader->commit({3, 10, 7});
  EXPECT_EQ(ring->client_report(1)->consumed, (Cursor{3, 10, 7}));
}

TEST(Ring, KeepsTheLastCommitOfAClientThatWasKilledInTheMiddleOfTheNext) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  reader->commit({0, 0, 8});
  // The next commit was interrupted: its entry is half written, its count is not.
  reader->lease().consumed[0].epoch.store(1);
  EXPECT_EQ(ring->client_report(0)->consumed, (Cursor{0, 0, 8}));
}

TEST(Ring, ReadsOnlyWholeCommitsWhileTheClientCommits) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  std::jthread client([&](const std::stop_token& stop) {
    for (std::uint64_t i = 1; !stop.stop_requested(); ++i) reader->commit({i, i, i});
  });
  std::uint64_t last = 0;
  while (last < 100'000) {
    const auto seen = ring->client_report(0)->consumed;
    if (!seen) continue;
    ASSERT_EQ(seen->epoch, seen->batch);
    ASSERT_EQ(seen->epoch, seen->origin);
    ASSERT_GE(seen->epoch, last);
    last = seen->epoch;
  }
}

TEST(Ring, HasTheSizeThatItPredicts) {
  auto ring = make_ring(3, 2);
  EXPECT_EQ(value_or_die(RingWriter::bytes_needed(small_ring(3, 2))), ring->bytes());
}

TEST(Ring, GetsTheMemoryOfItsSlotsAsTheyAreAllocated) {
  auto ring = value_or_die(RingWriter::create(small_ring(6, 2), 2));
  auto reader = attach(*ring, 0);
  const std::uint64_t stride = reader->memory(0).size();
  const auto bytes = [&ring] {
    struct stat status {};
    EXPECT_EQ(::fstat(ring->attach(1, value_or_die(ring->make_lease())).data_fd, &status), 0);
    ring->detach(1);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  };
  EXPECT_EQ(bytes(), 2 * stride);
  EXPECT_EQ(reader->data().size(), 2 * stride);
  EXPECT_EQ(ring->bytes() + 4 * stride, value_or_die(RingWriter::bytes_needed(small_ring(6, 2))));
  EXPECT_DEATH((void)ring->loan(2), "no memory yet");
  ASSERT_TRUE(ring->allocate(1)) << "it never shrinks";
  EXPECT_EQ(ring->allocated(), 2U);
  ASSERT_TRUE(ring->allocate(5));
  EXPECT_EQ(bytes(), 5 * stride);
  EXPECT_EQ(reader->data().size(), 5 * stride) << "for a client that was attached before, too";
  fill_and_publish(*ring, 4, 3, 17);
  ring->grant(0, 4, 0);
  const auto grant = reader->next(0, 1s, 0ns, nullptr);
  ASSERT_TRUE(grant);
  EXPECT_EQ(wrong_words(*reader, *grant), 0U);
}

TEST(Ring, StaysAsItIsIfThereIsNoMemoryToGrow) {
  const auto slots =
      static_cast<std::uint32_t>(2 * mapped_headroom().bytes / (64 << 20) + 2);  // twice what there is
  auto options = small_ring(slots, 1);
  options.fields[0].shape = {1 << 20, 1 << 4};  // 64 MiB a slot
  auto ring = value_or_die(RingWriter::create(options, 1));
  const auto grown = ring->allocate(slots);
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, ErrorCode::kNotEnoughMemory);
  EXPECT_NE(grown.error().message.find("GB more"), std::string::npos) << grown.error().message;
  EXPECT_EQ(ring->allocated(), 1U);
}

TEST(Ring, RefusesImpossibleSizesAndNamesThem) {
  auto options = small_ring(0, 1);
  EXPECT_EQ(RingWriter::create(options).error().code, ErrorCode::kInvalidArgument);
  options = small_ring(4000000000U, 1);
  options.fields[0].shape = {1 << 20, 1 << 10};
  const auto created = RingWriter::create(options);
  ASSERT_FALSE(created.has_value());
  EXPECT_TRUE(created.error().code == ErrorCode::kNotEnoughMemory ||
              created.error().code == ErrorCode::kInvalidArgument)
      << created.error().to_string();
}

}  // namespace
}  // namespace headrace::ring::testing
