#include <thread>

#include "tests/stress/ring_process.h"

namespace headrace::ring::testing {
namespace {

/// The ring needs at least one slot more than all waiting readers may hold, because fewer would deadlock; the
/// server must refuse further attachments.
struct Shape {
  std::uint32_t slots;
  std::uint32_t lanes;
  std::size_t max_leases;
};

void run_to_the_end(BroadcastLedger& ledger, int doorbell) {
  const std::uint64_t give_up = monotonic_ns() + 240'000'000'000ULL;
  while (!ledger.finished() && monotonic_ns() < give_up)
    if (!ledger.step()) ledger.sleep(doorbell, 100);
  EXPECT_TRUE(ledger.finished());
}

void expect_all_free(const RingWriter& ring) {
  for (std::uint32_t s = 0; s < ring.slot_count(); ++s)
    EXPECT_EQ(ring.state(s), SlotState::kFree) << "slot " << s;
}

class RingStress : public ::testing::TestWithParam<Shape> {};

TEST_P(RingStress, DeliversEveryBatchWholeAndInOrderToThreads) {
  const auto [slots, lanes, max_leases] = GetParam();
  const std::uint64_t batches = 3000 * stress_factor();
  auto ring = make_ring(slots, lanes);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  BroadcastLedger ledger(*ring, batches, max_leases);
  std::vector<ReaderReport> reports(lanes);
  std::vector<std::thread> readers;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    ledger.join(lane);
    readers.emplace_back(
        [&reports, lane, batches, leases = max_leases, reader = attach(*ring, lane, doorbell.get())] {
          reports[lane] = read_all(*reader, batches, leases, lane);
        });
  }
  run_to_the_end(ledger, doorbell.get());
  for (std::thread& reader : readers) reader.join();
  for (const ReaderReport& report : reports) {
    EXPECT_EQ(report.batches, batches);
    EXPECT_EQ(report.errors, 0U);
  }
  expect_all_free(*ring);
}

TEST_P(RingStress, DeliversEveryBatchWholeAndInOrderToProcesses) {
  const auto [slots, lanes, max_leases] = GetParam();
  const std::uint64_t batches = 3000 * stress_factor();
  auto ring = make_ring(slots, lanes);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  BroadcastLedger ledger(*ring, batches, max_leases);
  std::vector<std::unique_ptr<ReaderProcess>> readers;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    ledger.join(lane);
    readers.push_back(std::make_unique<ReaderProcess>(
        *ring, lane, doorbell.get(), ReaderTask{.batches = batches, .max_leases = max_leases, .seed = lane}));
  }
  run_to_the_end(ledger, doorbell.get());
  for (const auto& reader : readers) EXPECT_EQ(reader->exit_status(), 0);
  expect_all_free(*ring);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RingStress,
                         ::testing::Values(Shape{1, 1, 1}, Shape{2, 1, 2}, Shape{7, 2, 3}, Shape{13, 4, 3}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.slots) + "Slots" +
                                  std::to_string(shape.param.lanes) + "Readers";
                         });

// Several threads of one client release leases at once (the trainer's thread and the one that waits for
// copies).
TEST(RingStress, TakesAcksFromSeveralThreadsOfOneClient) {
  const std::uint64_t batches = 4000 * stress_factor();
  auto ring = make_ring(8, 1);
  UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  BroadcastLedger ledger(*ring, batches, 8);
  ledger.join(0);
  auto reader = attach(*ring, 0, doorbell.get());
  std::mutex mutex;
  std::vector<Grant> held;
  std::atomic<std::uint64_t> errors{0};
  std::atomic<std::uint64_t> acked{0};
  std::thread taker([&] {
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto grant = reader->next(0, 60s, 5us, nullptr);
      if (!grant || grant->batch != i) ++errors;
      if (!grant) break;
      const std::lock_guard lock(mutex);
      held.push_back(*grant);
    }
  });
  std::vector<std::thread> ackers;
  for (int t = 0; t < 3; ++t)
    ackers.emplace_back([&] {
      while (acked < batches && errors == 0) {
        std::optional<Grant> grant;
        {
          const std::lock_guard lock(mutex);
          if (!held.empty()) {
            grant = held.back();
            held.pop_back();
          }
        }
        if (!grant) {
          std::this_thread::yield();
          continue;
        }
        errors += wrong_words(*reader, *grant);
        reader->ack(*grant);
        ++acked;
      }
    });
  run_to_the_end(ledger, doorbell.get());
  taker.join();
  for (std::thread& acker : ackers) acker.join();
  EXPECT_EQ(errors, 0U);
  expect_all_free(*ring);
}

}  // namespace
}  // namespace headrace::ring::testing

int main(int argc, char** argv) {
  return headrace::ring::testing::main_of_tests_and_readers(argc, argv);
}
