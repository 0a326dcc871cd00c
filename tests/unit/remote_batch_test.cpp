// The states of a batch that another process makes.
#include <gtest/gtest.h>

#include "server/exec/remote_batch.h"

namespace headrace::server::exec {
namespace {

TEST(RemoteBatch, TakesRowsOnceAlsoIfTheyCouldNotBeRead) {
  int released = 0;
  {
    RemoteBatch batch([&](std::uint32_t) { ++released; });
    EXPECT_TRUE(batch.awaited());
    ASSERT_TRUE(batch.arrive({.memory = nullptr, .fields = {1}}));
    const RemoteRows* const first = batch.rows();
    ASSERT_TRUE(first);
    EXPECT_FALSE(batch.arrive({.memory = nullptr, .fields = {2}})) << "twice";
    batch.forget_rows();
    EXPECT_FALSE(batch.rows());
    EXPECT_FALSE(batch.awaited());
    EXPECT_FALSE(batch.arrive({.memory = nullptr, .fields = {3}})) << "a worker may still use the first ones";
    EXPECT_EQ(first->fields, std::vector<std::uint64_t>{1});
  }
  EXPECT_EQ(released, 1);
}

TEST(RemoteBatch, TakesLateRowsUnlessItWasTakenBack) {
  RemoteBatch late([](std::uint32_t) {}), taken([](std::uint32_t) {});
  EXPECT_TRUE(late.make_here());
  EXPECT_TRUE(late.arrive({}));
  EXPECT_TRUE(taken.take_back());
  EXPECT_FALSE(taken.arrive({}));
}

TEST(RemoteBatch, UsesNoRowsOfAnOrderThatWasTakenBack) {
  int released = 0;
  {
    RemoteBatch batch([&](std::uint32_t copied) {
      ++released;
      EXPECT_EQ(copied, 0U);
    });
    EXPECT_TRUE(batch.awaited());
    EXPECT_TRUE(batch.take_back());
    EXPECT_EQ(released, 1);  // from now on its rows may be freed
    EXPECT_FALSE(batch.take_back());
    EXPECT_FALSE(batch.arrive({}));
    EXPECT_EQ(batch.rows(), nullptr);
  }
  EXPECT_EQ(released, 2);
}

TEST(RemoteBatch, UsesRowsThatComeLate) {
  RemoteBatch batch([](std::uint32_t) {});
  EXPECT_TRUE(batch.make_here());
  EXPECT_FALSE(batch.take_back());
  EXPECT_EQ(batch.rows(), nullptr);
  EXPECT_TRUE(batch.arrive({.samples = 7}));
  ASSERT_NE(batch.rows(), nullptr);
  EXPECT_EQ(batch.rows()->samples, 7U);
  batch.forget_rows();
  EXPECT_EQ(batch.rows(), nullptr);
}

}  // namespace
}  // namespace headrace::server::exec
