#include "clientlib/ring/private_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/unit/ring_harness.h"

namespace headrace::ring {
namespace {

using testing::value_or_die;

constexpr std::size_t kPages = 700;  // more than one read of pagemap returns

class PrivatePagesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(pages_) << "this kernel has no copy-on-write views"; }
  [[nodiscard]] std::span<std::byte> server() const { return {server_.data(), server_.size()}; }
  [[nodiscard]] std::span<std::byte> mine() const { return {mine_.data(), mine_.size()}; }
  [[nodiscard]] std::byte& mine(std::size_t page) const { return mine_.data()[page * page_size()]; }
  void server_writes(std::byte value) const { std::fill(server().begin(), server().end(), value); }
  [[nodiscard]] bool all_mine_are(std::byte value) const {
    return std::all_of(mine().begin(), mine().end(), [&](std::byte b) { return b == value; });
  }
  [[nodiscard]] std::size_t drop() const { return pages_->drop(mine(), mine_.fd(), 0); }

  std::optional<PrivatePages> pages_ = PrivatePages::open();
  Segment server_ = value_or_die(Segment::create("server", kPages* page_size(), ClientAccess::kReadOnly));
  Segment mine_ = value_or_die(Segment::map(UniqueFd(::dup(server_.fd())), Access::kCopyOnWrite, 1));
};

TEST_F(PrivatePagesTest, UnwrittenPagesShowTheServersWritesAndAreNotOwn) {
  for (const std::byte value : {std::byte{1}, std::byte{2}}) {
    server_writes(value);
    EXPECT_TRUE(all_mine_are(value));
    EXPECT_EQ(pages_->count(mine()), 0u);
  }
}

TEST_F(PrivatePagesTest, APageWrittenToIsOwnAndTheServerDoesNotSeeIt) {
  server_writes(std::byte{1});
  for (const std::size_t page : {0ul, 511ul, 512ul, kPages - 1}) mine(page) = std::byte{9};
  EXPECT_EQ(pages_->count(mine()), 4u);
  EXPECT_EQ(pages_->count(mine().subspan(page_size(), 511 * page_size())), 1u);
  EXPECT_EQ(server()[0], std::byte{1});
  server_writes(std::byte{2});
  EXPECT_EQ(mine(0), std::byte{9});
  EXPECT_EQ(mine(1), std::byte{2});
}

TEST_F(PrivatePagesTest, EachFirstWriteIsCountedAsAFaultAndReadingIsNot) {
  server_writes(std::byte{1});
  ASSERT_TRUE(all_mine_are(std::byte{1}));  // each page is mapped
  std::size_t quiet = 0;                    // a sanitizer and the kernel itself also cause faults
  for (std::size_t page = 0; page < 100; ++page) {
    const std::uint64_t before = PrivatePages::faults().value();
    ASSERT_EQ(mine(page), std::byte{1});
    if (PrivatePages::faults() == before) ++quiet;
    mine(page) = std::byte{9};
    ASSERT_GT(PrivatePages::faults().value(), before);
  }
  EXPECT_GT(quiet, 50u);
}

TEST_F(PrivatePagesTest, FaultsOfAThreadThatEndedAndOfTheKernelItselfAreCounted) {
  server_writes(std::byte{1});
  ASSERT_TRUE(all_mine_are(std::byte{1}));
  std::uint64_t before = PrivatePages::faults().value();
  std::thread([&] { mine(0) = std::byte{9}; }).join();
  EXPECT_GT(PrivatePages::faults().value(), before);
  const UniqueFd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  before = PrivatePages::faults().value();
  ASSERT_EQ(::read(zeros.get(), &mine(1), 1), 1);
  EXPECT_GT(PrivatePages::faults().value(), before);
  EXPECT_EQ(pages_->count(mine()), 2u);
}

TEST_F(PrivatePagesTest, DroppedPagesShowTheServersBytesAgain) {
  server_writes(std::byte{1});
  std::fill(mine().begin(), mine().end(), std::byte{9});
  EXPECT_EQ(drop(), kPages);
  EXPECT_EQ(pages_->count(mine()), 0u);
  EXPECT_TRUE(all_mine_are(std::byte{1}));
  for (const std::size_t page : {0ul, 511ul, 512ul, kPages - 1}) mine(page) = std::byte{9};
  EXPECT_EQ(drop(), 4u);
  EXPECT_TRUE(all_mine_are(std::byte{1}));
}

TEST_F(PrivatePagesTest, OwnPagesKeepTheirContentsWhenTheServerWrites) {
  server_writes(std::byte{1});
  mine(3) = std::byte{9};
  PrivatePages::own_all(mine());
  EXPECT_EQ(pages_->count(mine()), kPages);
  server_writes(std::byte{2});
  EXPECT_EQ(mine(3), std::byte{9});
  mine(3) = std::byte{1};
  EXPECT_TRUE(all_mine_are(std::byte{1}));
}

TEST_F(PrivatePagesTest, OwningAllPagesLosesNoWriteOfAnotherThread) {
  for (int round = 0; round < 20; ++round) {
    server_writes(std::byte{1});
    std::atomic<bool> go{false};
    std::thread writer([&] {
      while (!go) std::this_thread::yield();
      for (std::size_t page = 0; page < kPages; ++page)
        std::atomic_ref(mine(page)).store(std::byte{9}, std::memory_order_relaxed);
    });
    go = true;
    PrivatePages::own_all(mine());
    writer.join();
    for (std::size_t page = 0; page < kPages; ++page) ASSERT_EQ(mine(page), std::byte{9}) << page;
    ASSERT_EQ(drop(), kPages);
  }
}

TEST_F(PrivatePagesTest, LockedMemoryIsDroppedAllTheSame) {
  server_writes(std::byte{1});
  constexpr std::size_t kLocked = 8;
  if (::mlock(mine().data(), kLocked * page_size()) != 0) GTEST_SKIP() << "may not lock memory";
  std::fill(mine().begin(), mine().end(), std::byte{9});
  server_writes(std::byte{2});
  EXPECT_EQ(drop(), kPages);
  EXPECT_TRUE(all_mine_are(std::byte{2}));
}

}  // namespace
}  // namespace headrace::ring
