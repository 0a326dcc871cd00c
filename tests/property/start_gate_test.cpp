// When clients of streams that share rows begin: sharing.wait_for counts all of them.
#include <gtest/gtest.h>

#include "server/log/log.h"
#include "tests/engine_fixture.h"

namespace headrace::testing {
namespace {

using namespace std::chrono_literals;
using server::exec::StartGate;

/// Streams of one gate, by name with their wait_for.
class Gate {
 public:
  explicit Gate(const std::vector<std::pair<std::string, std::uint32_t>>& streams,
                std::chrono::nanoseconds wait_timeout = 1h) {
    server::log::info("a gate");  // ThreadSanitizer does not see how libspdlog initializes itself
    const auto gate = std::make_shared<StartGate>();
    std::vector<StreamSetup> setups;
    for (const auto& [name, wait_for] : streams) {
      StreamSetup& setup = setups.emplace_back(synthetic_stream(name, 64, 4, 4));
      setup.wait_for = wait_for;
      setup.wait_timeout = wait_timeout;
      setup.gate = gate;
    }
    engine_ = start_engine(std::move(setups), 1);
  }

  Engine& operator*() { return *engine_; }
  std::unique_ptr<RingClient> client(const std::string& stream) {
    return std::make_unique<RingClient>(*engine_, stream, "client-" + std::to_string(++clients_));
  }
  /// Whether the client, which asks for a batch, gets one in time: soon if it should have to wait.
  bool begins(RingClient& client) { return gets_batch(client, 2000); }
  bool begins_soon(RingClient& client) { return gets_batch(client, 10); }
  /// As the session thread does four times a second.
  void check() {
    for (std::size_t i = 0; i < engine_->stream_count(); ++i)
      engine_->with(i, [](Stream& stream) {
        stream.beat(ring::monotonic_ns(), 0);
        return 0;
      });
  }
  [[nodiscard]] std::uint64_t awaited(std::size_t stream) const {
    engine_->with(stream, [](Stream& s) {
      s.publish_figures();
      return 0;
    });
    return engine_->stream(stream).status().figures().awaited_clients;
  }
  /// Made so far by all streams.
  [[nodiscard]] std::uint64_t batches() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < engine_->stream_count(); ++i) sum += engine_->totals(i).batches;
    return sum;
  }
  [[nodiscard]] std::uint64_t filling(std::size_t stream) const {
    return engine_->stream(stream).status().figures().filling;
  }
  [[nodiscard]] bool blocked(std::size_t stream) const {
    return engine_->stream(stream).status().figures().blocked_since_ns != 0;
  }
  void fence_stuck(std::size_t stream, std::uint64_t later_ns) {
    engine_->with(stream,
                  [&](Stream& s) { return s.fence_stuck(ring::monotonic_ns() + later_ns, 1'000'000'000); });
  }

 private:
  bool gets_batch(RingClient& client, int looks) {
    for (int look = 0; look < looks; ++look) {
      check();
      if (const auto grant = client.next(10ms)) {
        client.reader().ack(*grant);
        check();
        return true;
      }
    }
    return false;
  }

  std::unique_ptr<Engine> engine_;
  int clients_ = 0;
};

TEST(StartGate, CountsTheClientsOfAllStreams) {
  Gate gate({{"a", 3}, {"b", 3}});
  const auto one = gate.client("a"), two = gate.client("a"), three = gate.client("b");
  EXPECT_FALSE(gate.begins_soon(*one));
  EXPECT_FALSE(gate.begins_soon(*three));
  EXPECT_EQ(gate.awaited(0), 1U);
  EXPECT_EQ(gate.awaited(1), 1U);
  EXPECT_TRUE(gate.begins(*two));
  EXPECT_TRUE(gate.begins(*one));
  EXPECT_TRUE(gate.begins(*three));
  EXPECT_EQ(gate.awaited(1), 0U);
}

TEST(StartGate, LetsFurtherClientsBeginUntilAllHaveDetached) {
  Gate gate({{"a", 2}, {"b", 2}});
  for (int set = 0; set < 2; ++set) {
    auto one = gate.client("a"), two = gate.client("b");
    EXPECT_FALSE(gate.begins_soon(*one)) << "set " << set;
    EXPECT_TRUE(gate.begins(*two));
    one->leave();
    EXPECT_TRUE(gate.begins(*gate.client("a")));
    EXPECT_TRUE(gate.begins(*gate.client("b")));
  }
}

TEST(StartGate, AStreamThatWaitsForFewerBeginsEarlierAndCountsForTheOthers) {
  Gate gate({{"alone", 1}, {"pair", 2}, {"four", 4}});
  const auto alone = gate.client("alone");
  gate.check();
  const auto pair = gate.client("pair");
  EXPECT_FALSE(gate.begins_soon(*pair)) << "the other one is attached, but has not called next()";
  EXPECT_TRUE(gate.begins(*alone));
  EXPECT_TRUE(gate.begins(*pair));
  const auto four = gate.client("four"), third = gate.client("pair");
  EXPECT_FALSE(gate.begins_soon(*four)) << "three have called next()";
  EXPECT_TRUE(gate.begins(*third));
  EXPECT_TRUE(gate.begins(*four)) << "clients of an open stream count, too";
}

TEST(StartGate, AStreamWithoutClientsDoesNotEndTheWait) {
  Gate gate({{"idle", 3}, {"busy", 1}}, 2s);
  const auto busy = gate.client("busy");
  EXPECT_TRUE(gate.begins(*busy));
  std::this_thread::sleep_for(2100ms);
  gate.check();
  const auto one = gate.client("idle");
  EXPECT_FALSE(gate.begins_soon(*one)) << "its wait begins with its own first client";
  EXPECT_EQ(gate.awaited(0), 1U);
  EXPECT_TRUE(gate.begins(*one)) << "its wait_timeout has passed";
}

TEST(StartGate, AStreamThatBeginsLateLetsThoseWithTheSameWaitForBegin) {
  Gate gate({{"a", 3}, {"same", 3}, {"more", 4}}, 500ms);
  const auto one = gate.client("a");
  EXPECT_TRUE(gate.begins(*one));
  EXPECT_TRUE(gate.begins_soon(*gate.client("same")));
  EXPECT_FALSE(gate.begins_soon(*gate.client("more")));
}

TEST(StartGate, ForgetsAClientThatAskedAndLeft) {
  Gate gate({{"a", 2}, {"b", 2}});
  auto gone = gate.client("a");
  EXPECT_FALSE(gate.begins_soon(*gone));
  gone->leave();
  const auto one = gate.client("b");
  EXPECT_FALSE(gate.begins_soon(*one));
  EXPECT_EQ(gate.awaited(1), 1U);
}

TEST(StartGate, NoStreamMakesBatchesBeforeAllBegin) {
  Gate gate({{"a", 2}, {"b", 2}});
  for (int set = 0; set < 2; ++set) {
    const auto before = gate.batches();
    const auto one = gate.client("a");
    EXPECT_FALSE(gate.begins_soon(*one)) << "set " << set;
    EXPECT_EQ(gate.batches(), before) << "set " << set;
    const auto two = gate.client("b");
    EXPECT_TRUE(gate.begins(*two));
    EXPECT_TRUE(gate.begins(*one));
    std::this_thread::sleep_for(50ms);  // the rings fill up
    gate.check();
    EXPECT_TRUE(gate.blocked(0));
    one->leave();
    two->leave();
    gate.check();
    std::this_thread::sleep_for(50ms);
    gate.check();
    EXPECT_FALSE(gate.blocked(0)) << "nobody reads: the ring is not in the way of anything";
    EXPECT_EQ(gate.filling(0), 0U);
  }
}

TEST(StartGate, FencedClientsDoNotCount) {
  for (const bool fenced_last : {false, true}) {
    Gate gate({{"a", 2}, {"b", 2}});
    const auto stuck = gate.client("a"), one = gate.client("b");
    EXPECT_FALSE(gate.begins_soon(*stuck));
    EXPECT_TRUE(gate.begins(*one));
    if (fenced_last) one->leave();
    gate.fence_stuck(0, 0);  // sees the heartbeat
    gate.fence_stuck(0, 3'600'000'000'000);
    one->leave();
    EXPECT_EQ(gate.awaited(0), 0U) << "the only client is fenced, and waits for nobody";
    EXPECT_FALSE(gate.begins_soon(*gate.client("b")))
        << "the next set waits, although the stuck client is still attached";
  }
}

}  // namespace
}  // namespace headrace::testing
