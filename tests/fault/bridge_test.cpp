// Rows made by another process: whatever the bridge does, clients get the batches of a Maker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "headrace/client.h"
#include "headrace/maker.h"
#include "tests/batch_content.h"
#include "tests/bridge_peer.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::uint32_t kSamples = 60;

class BridgeTest : public ::testing::Test {
 protected:
  BridgeTest() {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      const auto file = pixels::make_jpeg({.width = 60, .height = 50, .seed = i});
      folder_.put("photos/" + std::string(i % 2 ? "cat" : "dog") + "/" + std::to_string(100 + i) + ".jpg",
                  std::string(file.begin(), file.end()));
    }
  }
  /// `more`: keys of the stream, `of_source`: of its source; each begins with a comma.
  void start(const std::string& more = "", const std::string& of_source = "") {
    config_ =
        "sources: { photos: { type: image_folder, path: " + (folder_.path() / "photos").string() + of_source +
        " } }\nstreams: { train: { source: photos, batch_size: 7, transforms: [{ random_resized_crop: 32 "
        "}], ring: { prefetch: 4, max_clients: 2 }" +
        more + " } }\n";
    server_ = std::make_unique<RunningServer>(directory(), config_);
  }
  [[nodiscard]] std::filesystem::path directory() const { return folder_.path() / "run"; }
  [[nodiscard]] Maker maker() const {
    return or_throw(Maker::open(folder_.put("train.yaml", config_).string(), {.stream = "train"}));
  }
  [[nodiscard]] Stream open(std::uint32_t rank = 0, std::uint32_t world_size = 1) const {
    return or_throw(or_throw(Client::connect({.address = directory().string()}))
                        .open({.stream = "train", .rank = rank, .world_size = world_size}));
  }
  [[nodiscard]] json stats() const {
    return json::parse(or_throw(or_throw(Client::connect({.address = directory().string()})).stats()));
  }
  [[nodiscard]] std::uint64_t made_elsewhere() const {
    return stats()["streams"]["train"]["made_elsewhere"].get<std::uint64_t>();
  }
  /// Reads `epochs` epochs and compares each batch with a Maker's.
  void expect_epochs(std::uint64_t epochs) {
    const Maker reference = maker();
    Stream stream = open();
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      std::uint64_t k = 0;
      while (auto batch = or_throw(stream.next(20s)))
        EXPECT_EQ(content_of(*batch), content_of(or_throw(reference.batch(epoch, k++))));
      EXPECT_EQ(k, stream.epoch_length());
    }
  }

  /// Reads epoch after epoch until `true_now`: workers that are fast enough need the bridge only sometimes.
  template <class F>
  void read_until(F true_now) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    do {
      expect_epochs(2);
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    } while (!true_now() && !HasFailure());
  }
  [[nodiscard]] json bridge() const { return stats()["bridge"]; }

  TempFolder folder_;
  std::string config_;
  std::unique_ptr<RunningServer> server_;
};

/// Answers orders on a thread until it is stopped.
class Answering {
 public:
  using Answer = std::function<void(BridgePeer&, const json& order)>;
  Answering(const std::filesystem::path& directory, std::uint32_t most, Answer answer)
      : peer_(directory), answer_(std::move(answer)) {
    peer_.greet(most);
    thread_ = std::thread([this] {
      while (!stop_)
        if (const json order = peer_.order(20ms); !order.is_null()) answer_(peer_, order);
    });
  }
  ~Answering() { stop(); }
  BridgePeer& stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return peer_;
  }

 private:
  BridgePeer peer_;
  const Answer answer_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(BridgeTest, RowsOfAnotherProcessAreDelivered) {
  start();
  const Maker remote = maker();
  Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    peer.make(order, remote);
    peer.send(order, "one");
  });
  read_until([&] { return made_elsewhere() > 0; });
  const json found = bridge();
  EXPECT_TRUE(found["connected"].get<bool>());
  ASSERT_EQ(found["nodes"].size(), 1U) << found;
  EXPECT_EQ(found["nodes"][0]["node"], "one");
  EXPECT_GT(found["nodes"][0]["samples"].get<std::uint64_t>(), 0U);
  EXPECT_GE(made_elsewhere(), found["nodes"][0]["samples"].get<std::uint64_t>());
  EXPECT_EQ(found["failed"], 0);
}

TEST_F(BridgeTest, RowsOfAPartOfASourceAreDelivered) {
  start(", part: train", ", split: { seed: 1, fractions: { train: 0.8, val: 0.2 } }");
  const Maker remote = maker();
  const Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    peer.make(order, remote);
    peer.send(order, "one");
  });
  read_until([&] { return made_elsewhere() > 0; });
}

TEST_F(BridgeTest, RowsOfBadSamplesAreMadeHereWhateverIsInThem) {
  for (std::uint32_t i = 0; i < kSamples; i += 6)
    folder_.put("photos/dog/" + std::to_string(100 + i) + ".jpg", "bad");
  start(", max_bad: 0.5");
  const Maker remote = maker();
  const Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    BridgePeer::Made& made = peer.make(order, remote);
    for (std::size_t row = 0; row < made.replaced.size(); ++row) {
      if (made.replaced[row] == 0) continue;
      const std::size_t size = made.fields[0].size() / made.replaced.size();
      std::fill_n(made.fields[0].begin() + static_cast<std::ptrdiff_t>(row * size), size, std::byte{7});
      made.samples[row] = 12345;
    }
    peer.send(order, "one");
  });
  read_until([&] { return made_elsewhere() > 200; });
  EXPECT_TRUE(bridge()["nodes"][0]["refused"].is_null()) << bridge();
}

TEST_F(BridgeTest, EachRankGetsItsBatches) {
  start(", delivery: shard");
  const Maker remote = maker(), reference = maker();
  const Answering answering(directory(), 8, [&](BridgePeer& peer, const json& order) {
    peer.make(order, remote);
    peer.send(order, "one");
  });
  std::vector<Stream> ranks;
  ranks.push_back(open(0, 2));
  ranks.push_back(open(1, 2));
  const auto end = std::chrono::steady_clock::now() + 60s;
  std::uint64_t epoch = 0;
  do {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    for (std::uint64_t k = 0; k < ranks[0].epoch_length(); ++k)
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        const auto batch = or_throw(ranks[rank].next(20s));
        ASSERT_TRUE(batch);
        EXPECT_EQ(content_of(*batch), content_of(or_throw(reference.batch(epoch, k, 2, rank))));
      }
    for (Stream& rank : ranks) EXPECT_FALSE(or_throw(rank.next(20s)));
    ++epoch;
  } while (made_elsewhere() == 0 && !HasFailure());
}

TEST_F(BridgeTest, NoMoreOrdersAreOpenThanTheBridgeAllows) {
  start();
  BridgePeer peer(directory());
  peer.greet(2);
  const Maker remote = maker();
  Stream stream = open();
  const json first = peer.order(), second = peer.order();
  ASSERT_FALSE(second.is_null());
  EXPECT_TRUE(peer.order(300ms).is_null());
  // A released order makes room for the next one.
  peer.make(first, remote);
  peer.send(first, "one");
  while (or_throw(stream.next(20s)) && peer.released == 0) (void)peer.order(10ms);
  EXPECT_GT(peer.released, 0U);
  peer.say({{"most", 0}});
}

TEST_F(BridgeTest, OrdersThatNobodyAnswersAreMadeHere) {
  start();
  const Answering answering(directory(), 4, [](BridgePeer&, const json&) {});
  expect_epochs(2);
  EXPECT_EQ(made_elsewhere(), 0U);
}

TEST_F(BridgeTest, ABridgeThatDisconnectsLeavesItsOrdersToTheServer) {
  start();
  {
    BridgePeer peer(directory());
    peer.greet(8);
    Stream stream = open();
    ASSERT_FALSE(peer.order().is_null());
    peer.hang_up();
    for (std::uint64_t k = 0; k < stream.epoch_length(); ++k) ASSERT_TRUE(or_throw(stream.next(20s)));
  }
  EXPECT_FALSE(stats()["bridge"]["connected"].get<bool>());
  // Another one may come.
  const Maker remote = maker();
  const Answering answering(directory(), 8, [&](BridgePeer& next, const json& order) {
    next.make(order, remote);
    next.send(order, "two");
  });
  read_until([&] { return made_elsewhere() > 0; });
}

TEST_F(BridgeTest, ANodeThatMakesWrongRowsIsRefused) {
  start();
  const Maker remote = maker();
  Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    BridgePeer::Made& made = peer.make(order, remote);
    for (std::byte& value : made.fields[0]) value ^= std::byte{1};
    peer.send(order, "liar");
  });
  read_until([&] { return !bridge()["nodes"].empty(); });
  EXPECT_EQ(made_elsewhere(), 0U);
  const json node = bridge()["nodes"][0];
  EXPECT_EQ(node["node"], "liar");
  EXPECT_THAT(node["refused"].get<std::string>(), HasSubstr("other values"));
  const auto& others = answering.stop().others;
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0]["refused"], "liar");
}

TEST_F(BridgeTest, ANodeDoesNotKnowWhichRowIsChecked) {
  start();
  const Maker remote = maker();
  std::atomic<int> answers{0};
  std::atomic<bool> refused{false};
  // Each answer has one right row, which depends on the order's number alone.
  const Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    BridgePeer::Made& made = peer.make(order, remote);
    std::vector<std::byte>& rows = made.fields[0];
    const std::size_t count = made.samples.size(), row_bytes = rows.size() / count;
    const std::uint64_t right = (order["order"].get<std::uint64_t>() * 0x9e3779b97f4a7c15 >> 32) % count;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i / row_bytes != right) rows[i] ^= std::byte{1};
    peer.send(order, "liar");
    refused = !peer.others.empty();
    ++answers;
  });
  Stream stream = open();
  while (answers < 40 && !refused) (void)or_throw(stream.next(20s));
  EXPECT_TRUE(refused);
}

TEST_F(BridgeTest, ABridgeThatStartsAgainHearsOfARefusedNodeWhenItSendsItsRows) {
  start();
  const Maker remote = maker();
  const auto refusal = [&](std::byte spoiled) {
    std::atomic<bool> heard{false};
    json found;
    {
      Answering answering(directory(), 4, [&, spoiled](BridgePeer& peer, const json& order) {
        heard = !peer.others.empty();
        for (std::byte& value : peer.make(order, remote).fields[0]) value ^= spoiled;
        peer.send(order, "liar");
      });
      read_until([&] { return heard.load(); });
      if (heard) found = answering.stop().others[0];
    }
    read_until([&] { return !bridge()["connected"].get<bool>(); });
    return found;
  };
  const json first = refusal(std::byte{1});
  EXPECT_EQ(first["refused"], "liar");
  EXPECT_EQ(refusal(std::byte{0}), first);
  EXPECT_EQ(made_elsewhere(), 0U);
}

TEST_F(BridgeTest, ANodeWithOtherFilesIsRefused) {
  start();
  const Maker remote = maker();
  const Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    for (std::uint64_t& sample : peer.make(order, remote).samples) sample = (sample + 1) % kSamples;
    peer.send(order, "other");
  });
  read_until([&] { return !bridge()["nodes"].empty(); });
  EXPECT_THAT(stats()["bridge"]["nodes"][0]["refused"].get<std::string>(),
              HasSubstr("do both read the same files"));
}

TEST_F(BridgeTest, RowsThatCannotBeReadAreMadeHere) {
  start();
  const Maker remote = maker();
  const Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    peer.say({{"made", order["order"]},
              {"node", "gone"},
              {"received", 0},
              {"sent", 0},
              {"fields", {64, 64}},
              {"samples", 64},
              {"replaced", ~0ULL}});
  });
  read_until([&] { return bridge()["failed"] > 0; });
  EXPECT_EQ(made_elsewhere(), 0U);
}

TEST_F(BridgeTest, FailedOrdersAreMadeHere) {
  start();
  const Answering answering(directory(), 4, [](BridgePeer& peer, const json& order) {
    peer.say({{"failed", order["order"]}, {"node", "poor"}, {"why", "no memory"}});
  });
  read_until([&] { return bridge()["failed"] > 0; });
}

TEST_F(BridgeTest, BadSamplesAreReplacedAndCountedHere) {
  for (int i = 0; i < 3; ++i) folder_.put("photos/cat/bad" + std::to_string(i) + ".jpg", "no image");
  start();
  const Maker remote = maker();
  const Answering answering(directory(), 4, [&](BridgePeer& peer, const json& order) {
    peer.make(order, remote);
    peer.send(order, "one");
  });
  read_until([&] { return made_elsewhere() > 0; });
  const json train = stats()["streams"]["train"];
  EXPECT_EQ(train["bad_samples"]["distinct"], 3);
  EXPECT_GE(train["replaced"].get<std::uint64_t>(), 6U);
}

TEST_F(BridgeTest, StreamsThatMixRowsGetNoOrders) {
  start(", mix: { mixup: { alpha: 0.2 } }, output: { dtype: float32 }");
  BridgePeer peer(directory());
  peer.greet(4);
  ASSERT_EQ(peer.streams.size(), 1U);
  EXPECT_EQ(peer.streams[0]["name"], "train");
  EXPECT_THAT(peer.streams[0]["obstacle"].get<std::string>(), HasSubstr("mixed"));
  Stream stream = open();
  ASSERT_TRUE(or_throw(stream.next(20s)));
  EXPECT_TRUE(peer.order(200ms).is_null());
}

TEST_F(BridgeTest, ASecondBridgeIsTurnedAway) {
  start();
  BridgePeer first(directory());
  first.greet(1);
  BridgePeer second(directory());
  EXPECT_THAT(second.hear()["error"].get<std::string>(), HasSubstr("another bridge"));
}

TEST_F(BridgeTest, InvalidPacketsEndTheConnectionOnly) {
  start();
  const std::string wrong[] = {"",
                               "no json",
                               "{}",
                               R"({"bridge": 2, "most": 1})",
                               R"({"bridge": 1})",
                               R"({"bridge": 1, "most": 5000})",
                               R"({"bridge": 1, "most": -1})"};
  for (const std::string& bytes : wrong) {
    BridgePeer peer(directory());
    peer.say_bytes(bytes.empty() ? std::string(1, '\0') : bytes);
    EXPECT_TRUE(peer.hear().contains("error")) << bytes;
  }
  const std::string later[] = {R"({"made": 1})", R"({"made": 1, "node": "a\nb"})", R"({"failed": "x"})",
                               R"({"most": 4097})", "[]"};
  for (const std::string& bytes : later) {
    BridgePeer peer(directory());
    peer.greet(0);
    peer.say_bytes(bytes);
    EXPECT_TRUE(peer.hear().contains("error")) << bytes;
  }
  expect_epochs(1);
}

TEST_F(BridgeTest, AServerWithOpenOrdersStopsAtOnce) {
  start();
  BridgePeer peer(directory());
  peer.greet(8);
  Stream stream = open();
  ASSERT_FALSE(peer.order().is_null());
  server_.reset();
  while (!peer.hear(5s).is_null()) {
  }
}

}  // namespace
}  // namespace headrace::testing
