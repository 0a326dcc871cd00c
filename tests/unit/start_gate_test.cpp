// Checks when clients of streams that share rows begin.
#include "server/exec/start_gate.h"

#include <gtest/gtest.h>

namespace headrace::server::exec {
namespace {

TEST(StartGate, CountsTheClientsOfAllStreams) {
  StartGate gate;
  const std::size_t one = gate.add_stream(), other = gate.add_stream();
  gate.set_clients(one, {.attached = 2, .asked = 1}, 100);
  gate.set_clients(other, {.attached = 3, .asked = 0}, 200);
  EXPECT_EQ(gate.total().attached, 5U);
  EXPECT_EQ(gate.total().asked, 1U);
  gate.set_clients(one, {}, 300);
  EXPECT_EQ(gate.total().attached, 3U);
}

TEST(StartGate, RemembersWhenTheFirstClientOfASetAsked) {
  StartGate gate;
  const std::size_t one = gate.add_stream(), other = gate.add_stream();
  EXPECT_EQ(gate.first_ask_ns(), 0U);
  gate.set_clients(one, {.attached = 1, .asked = 1}, 100);
  gate.set_clients(other, {.attached = 1, .asked = 1}, 200);
  EXPECT_EQ(gate.first_ask_ns(), 100U);
  gate.set_clients(one, {}, 300);
  EXPECT_EQ(gate.first_ask_ns(), 100U) << "the other stream's client still waits";
  gate.set_clients(other, {.attached = 1}, 400);
  EXPECT_EQ(gate.first_ask_ns(), 0U);
  gate.set_clients(other, {.attached = 1, .asked = 1}, 500);
  EXPECT_EQ(gate.first_ask_ns(), 500U);
}

TEST(StartGate, OpensForStreamsWithTheSameOrASmallerWaitFor) {
  StartGate gate;
  EXPECT_FALSE(gate.is_open(1));
  gate.open(3);
  gate.open(1);
  EXPECT_TRUE(gate.is_open(3));
  EXPECT_FALSE(gate.is_open(4));
  gate.close();
  EXPECT_FALSE(gate.is_open(1));
}

}  // namespace
}  // namespace headrace::server::exec
