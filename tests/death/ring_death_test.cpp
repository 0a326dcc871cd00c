#include "tests/stress/ring_process.h"

namespace headrace::ring::testing {
namespace {

class RingDeath : public ::testing::Test {
 protected:
  template <class Done>
  void run_until(BroadcastLedger& ledger, Done done) {
    const std::uint64_t give_up = monotonic_ns() + 120'000'000'000ULL;
    while (!done() && monotonic_ns() < give_up)
      if (!ledger.step()) ledger.sleep(doorbell_.get(), 1);
    ASSERT_TRUE(done());
  }
  UniqueFd doorbell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

TEST_F(RingDeath, OfAReaderThatHoldsLeasesLeavesItsSlotsUntouchedUntilItIsDetached) {
  constexpr std::uint64_t kBatches = 500;
  auto ring = make_ring(5, 2);
  BroadcastLedger ledger(*ring, kBatches, 2);
  ledger.join(0);
  ledger.join(1);
  ReaderProcess victim(*ring, 0, doorbell_.get(), {.max_leases = 2, .hold = 2});
  ReaderProcess survivor(*ring, 1, doorbell_.get(), {.batches = kBatches, .max_leases = 2, .seed = 1});
  run_until(ledger, [&] { return victim.holds() && ledger.leases_of(0) == 2; });
  victim.kill();

  std::vector<std::pair<std::uint32_t, std::uint64_t>> held;
  for (std::uint32_t s = 0; s < 5; ++s)
    if (ledger.leased(s).contains(0)) held.emplace_back(s, ring->generation(s));
  ASSERT_EQ(held.size(), 2U);
  const std::uint64_t until = monotonic_ns() + 150'000'000;
  run_until(ledger, [&] { return monotonic_ns() > until; });
  for (const auto& [slot, generation] : held) {
    EXPECT_EQ(ring->state(slot), SlotState::kReady);
    EXPECT_EQ(ring->generation(slot), generation);
  }
  ledger.drop(0);
  run_until(ledger, [&] { return ledger.finished(); });
  EXPECT_EQ(survivor.exit_status(), 0);
  for (std::uint32_t s = 0; s < 5; ++s) EXPECT_EQ(ring->state(s), SlotState::kFree);
  for (const auto& [slot, generation] : held) EXPECT_GT(ring->generation(slot), generation);
}

TEST_F(RingDeath, AtAnyMomentCostsTheOtherReaderNothing) {
  const std::uint64_t rounds = 20 * stress_factor();
  std::mt19937 random(11);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    constexpr std::uint64_t kBatches = 300;
    auto ring = make_ring(4, 2);
    BroadcastLedger ledger(*ring, kBatches, 2);
    ledger.join(0);
    ledger.join(1);
    ReaderProcess victim(*ring, 0, doorbell_.get(),
                         {.batches = kBatches * 1000, .max_leases = 2, .seed = round});
    ReaderProcess survivor(*ring, 1, doorbell_.get(),
                           {.batches = kBatches, .max_leases = 2, .seed = round + 1});
    const std::uint64_t moment = monotonic_ns() + random() % 8'000'000;
    run_until(ledger, [&] { return monotonic_ns() > moment; });
    victim.kill();
    ledger.drop(0);
    run_until(ledger, [&] { return ledger.finished(); });
    EXPECT_EQ(survivor.exit_status(), 0) << "round " << round;
    for (std::uint32_t s = 0; s < 4; ++s) EXPECT_EQ(ring->state(s), SlotState::kFree);
  }
}

TEST_F(RingDeath, OfTheServerLeavesTheReadersLeasesReadable) {
  auto ring = make_ring(1, 1);
  auto reader = attach(*ring, 0);
  fill_and_publish(*ring, 0, 0, 3);
  ring->grant(0, 0, 0);
  const auto grant = reader->next(0, 1s, 0ns, nullptr);
  ASSERT_TRUE(grant.has_value());
  ring.reset();
  EXPECT_EQ(wrong_words(*reader, *grant), 0U);
  reader->ack(*grant);
  EXPECT_FALSE(reader->next(0, 1ms, 0ns, nullptr).has_value());
}

// --- broken contracts

class RingContract : public ::testing::Test {
 protected:
  RingContract() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  std::unique_ptr<RingWriter> ring_ = make_ring(2, 2);
};

TEST_F(RingContract, ForbidsLoaningASlotThatIsNotFree) {
  fill_and_publish(*ring_, 0, 0, 0);
  EXPECT_DEATH({ ring_->abandon(ring_->loan(0)); }, "not in the state this step begins with");
}

TEST_F(RingContract, ForbidsReleasingASlotThatIsNotReady) {
  EXPECT_DEATH(ring_->release(0), "not in the state this step begins with");
}

TEST_F(RingContract, ForbidsPublishingTwice) {
  EXPECT_DEATH(
      {
        LoanedSlot slot = ring_->loan(0);
        slot.offsets(2)[0] = 0;
        ring_->publish(std::move(slot), {});
        // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): that is the breach
        ring_->publish(std::move(slot), {});
      },
      "published already");
}

TEST_F(RingContract, ForbidsMoreRowsThanTheBatchSize) {
  EXPECT_DEATH(ring_->publish(ring_->loan(0), {.rows = 5, .valid_rows = 5}), "more rows than the slot holds");
}

TEST_F(RingContract, ForbidsRaggedValuesBeyondTheCapacity) {
  EXPECT_DEATH(
      {
        LoanedSlot slot = ring_->loan(0);
        slot.offsets(2)[4] = 33;
        ring_->publish(std::move(slot), {.rows = 4, .valid_rows = 4});
      },
      "exceed its capacity");
}

TEST_F(RingContract, ForbidsGrantingWhatIsNotReady) {
  const auto reader = attach(*ring_, 0);
  EXPECT_DEATH(ring_->grant(0, 1, 0), "must be READY");
}

TEST_F(RingContract, ForbidsGrantingToNobody) {
  fill_and_publish(*ring_, 0, 0, 0);
  EXPECT_DEATH(ring_->grant(1, 0, 0), "must be attached");
}

TEST_F(RingContract, ForbidsAttachingALaneTwice) {
  const auto reader = attach(*ring_, 0);
  EXPECT_DEATH(static_cast<void>(ring_->attach(0, ring_->make_lease().value())), "attached already");
}

TEST_F(RingContract, ForbidsIndicesThatAreNotThere) {
  EXPECT_DEATH(static_cast<void>(ring_->state(2)), "out of range");
  EXPECT_DEATH(static_cast<void>(ring_->attached(2)), "out of range");
  const auto reader = attach(*ring_, 0);
  EXPECT_DEATH(static_cast<void>(reader->values(2, 0)), "out of range");
  EXPECT_DEATH(static_cast<void>(reader->offsets(0, 0)), "no offsets");
}

}  // namespace
}  // namespace headrace::ring::testing

int main(int argc, char** argv) {
  return headrace::ring::testing::main_of_tests_and_readers(argc, argv);
}
