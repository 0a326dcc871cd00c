// A live stream over a real server in this process, with valid batches and hostile messages from its feeder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "clientlib/client/exchange.h"
#include "clientlib/client/session.h"
#include "headrace/client.h"
#include "server/config/config.h"
#include "server/session/server.h"
#include "tests/feed_peer.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint32_t kRows = 4;

class LiveStream : public ::testing::Test {
 protected:
  LiveStream() {
    const std::string text =
        "server: {directory: " + directory() +
        ", threads: 1, metrics: off, drain_timeout: 100ms, log_level: off}\n"
        "sources: {f: {type: feed, samples: 12, batch_size: 4, fields: [{name: x, dtype: "
        "int32}]}}\n"
        "streams: {train: {source: f, ring: {prefetch: 2, max_leases: 2}}}\n";
    server_ = server::session::Server::start(server::config::parse(text, "test.yaml").value()).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    stop();
  }
  void stop() {
    server_->ask_to_stop();
    thread_.join();
  }
  [[nodiscard]] std::string directory() const { return (folder_.path() / "run").string(); }
  [[nodiscard]] std::filesystem::path door() const { return folder_.path() / "run" / "feed-f.sock"; }
  [[nodiscard]] Stream open(OpenOptions options = {}) const {
    options.stream = "train";
    return or_throw(or_throw(Client::connect({.address = directory()})).open(options));
  }
  /// Writes batch b, whose rows are 4 b, 4 b + 1, ..., into a free slot.
  static void send(FeedPeer& peer, std::uint64_t batch, std::uint32_t slot) {
    for (std::uint32_t row = 0; row < kRows; ++row)
      peer.values<std::int32_t>(slot, 0)[row] = static_cast<std::int32_t>(batch * kRows + row);
    peer.announce(batch, slot, kRows);
  }
  static std::int32_t first_of(Stream& stream) {
    auto batch = or_throw(stream.next(20s));
    return batch ? or_throw(batch->values<std::int32_t>("x"))[0] : -1;
  }
  static Error failure_of(Stream& stream) {
    const auto batch = stream.next(20s);
    EXPECT_FALSE(batch);
    return batch ? Error{} : batch.error();
  }

  TempFolder folder_;
  std::unique_ptr<server::session::Server> server_;
  std::thread thread_;
};

TEST_F(LiveStream, GivesEachBatchOnceInOrderAndASlotBackForEach) {
  FeedPeer peer(door());
  peer.greet();
  Stream stream = open();
  EXPECT_TRUE(stream.info().live);
  send(peer, 0, 0);
  send(peer, 1, 1);
  EXPECT_EQ(first_of(stream), 0);
  EXPECT_EQ(first_of(stream), 4);
  EXPECT_EQ(peer.hear()["free"], 0);
  EXPECT_EQ(peer.hear()["free"], 1);
  send(peer, 2, 0);
  EXPECT_EQ(first_of(stream), 8);
  EXPECT_EQ(first_of(stream), -1);  // the epoch's end
  send(peer, 3, 1);
  EXPECT_EQ(first_of(stream), 12);
  EXPECT_EQ(stream.epoch(), 1U);
}

TEST_F(LiveStream, GoesOnlyForward) {
  FeedPeer peer(door());
  peer.greet();
  Stream stream = open();
  send(peer, 0, 0);
  EXPECT_EQ(first_of(stream), 0);
  const State state = stream.state();
  const auto loaded = stream.load_state(state);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(loaded.error().message, HasSubstr("cannot load a state"));
  const auto resumed = Client::connect({.address = directory()})->open({.stream = "train", .state = state});
  ASSERT_FALSE(resumed);
  EXPECT_THAT(resumed.error().message, HasSubstr("a saved state cannot be loaded"));
  const auto back = stream.set_epoch(0);
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error().message, HasSubstr("cannot go back to epoch 0, batch 0"));
  ASSERT_TRUE(stream.set_epoch(1));
  EXPECT_EQ(stream.epoch(), 1U);
  send(peer, 1, 1);
  EXPECT_EQ(peer.hear()["free"], 0);
  send(peer, 2, 0);
  EXPECT_EQ(peer.hear()["free"], 1);
  send(peer, 3, 1);
  EXPECT_EQ(first_of(stream), 12) << "batches 1 and 2 were left out";
}

TEST_F(LiveStream, ALateClientBeginsAtTheSlowestClientsNextBatch) {
  FeedPeer peer(door());
  peer.greet();
  Stream first = open({.client = "first"});
  send(peer, 0, 0);
  send(peer, 1, 1);
  EXPECT_EQ(first_of(first), 0);
  EXPECT_EQ(first_of(first), 4);
  EXPECT_EQ(peer.hear()["free"], 0);
  Stream second = open({.client = "second"});
  send(peer, 2, 0);
  EXPECT_EQ(first_of(second), 8);
  EXPECT_EQ(first_of(first), 8);
  const auto start = Client::connect({.address = directory()})
                         ->open({.stream = "train", .client = "third", .join = Join::kEpochStart});
  EXPECT_TRUE(start) << "all clients have the epoch's last batch, so the next one begins an epoch";
}

TEST_F(LiveStream, WhatCameBeforeTheFeedersEndIsHandedOutFirst) {
  FeedPeer peer(door());
  peer.greet();
  Stream stream = open();
  send(peer, 0, 0);
  send(peer, 1, 1);
  peer.hang_up();
  EXPECT_EQ(first_of(stream), 0);
  EXPECT_EQ(first_of(stream), 4);
  const Error error = failure_of(stream);
  EXPECT_EQ(error.code, ErrorCode::kStreamFailed);
  EXPECT_THAT(error.message, HasSubstr("ended before batch 2 of epoch 0: the feeder (pid"));
  const auto late = Client::connect({.address = directory()})->open({.stream = "train", .client = "late"});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::kStreamFailed);
}

TEST_F(LiveStream, AsksWhyItFailedWithoutMovingItsLane) {
  FeedPeer peer(door());
  peer.greet();
  wire::OpenRequest request;
  request.stream = "train";
  request.group = request.client = "asking";
  request.pid = ::getpid();
  const client::Address server{directory(), {}};
  const auto opened = or_throw(
      client::open_session(server, request, ring::RingReader::Slots::kShared, client::Deadline(20s), {}));
  const auto ask = [&](const std::string& session) {
    return client::exchange(server, "failure", wire::to_json(wire::FailureRequest{session}),
                            client::Deadline(20s))
        .and_then([](const auto& answer) { return wire::parse<wire::FailureReply>(answer.body); });
  };
  EXPECT_EQ(or_throw(ask(opened.reply.session)).why, "") << "the stream has not failed";
  EXPECT_EQ(ask("nobody").error().code, ErrorCode::kTokenInvalid);
  ring::RingReader& reader = *opened.attachment->reader;
  send(peer, 0, 0);
  const auto grant = reader.next(opened.reply.seek, 20s, {}, nullptr);
  ASSERT_TRUE(grant) << "the request changed the lane's seek number";
  reader.ack(*grant);
  EXPECT_EQ(peer.hear()["free"], 0);
  peer.say(R"({"end": "that was all", "done": true})");
  const client::Deadline deadline(20s);
  while ((reader.lane_state() & ring::kLaneFailed) == 0 && !deadline.over()) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(or_throw(ask(opened.reply.session)).why,
              HasSubstr("ended before batch 1 of epoch 0: that was all"));
}

TEST_F(LiveStream, SaysWhenAllClientsHadEverything) {
  FeedPeer peer(door());
  peer.greet();
  std::optional<Stream> stream = open();
  send(peer, 0, 0);
  EXPECT_EQ(peer.hear()["free"], 0);
  peer.say(R"({"end": "that was all", "done": true})");
  EXPECT_EQ(first_of(*stream), 0);
  EXPECT_THAT(failure_of(*stream).message, HasSubstr("ended before batch 1 of epoch 0: that was all"));
  stream.reset();
  EXPECT_EQ(peer.hear()["served"], true);
}

TEST_F(LiveStream, HostileBytesEndTheStreamWithAnError) {
  const std::pair<const char*, const char*> kinds[] = {
      {"\xff\xfe garbage", "BAD_MESSAGE"},
      {"[1, 2]", "BAD_MESSAGE"},
      {R"({"batch": -1, "slot": 0, "rows": 4})", "'batch'"},
      {R"({"batch": 0, "slot": 4294967295, "rows": 4})", "not free"},
      {R"({"batch": 0, "slot": 99999999999, "rows": 4})", "'slot'"},
      {R"({"batch": 281474976710656, "slot": 0, "rows": 4})", "expected batch number 0, found"},
      {R"({"batch": 0, "slot": 0, "rows": 0})", "expected 4 rows, found 0"},
      {R"({"batch": 0, "slot": 0})", "'rows'"},
      {R"({"end": 7, "done": true})", "'end'"},
  };
  for (const auto& [bytes, expected] : kinds) {
    LiveStream::stop();
    TempFolder fresh;
    const std::string text =
        "server: {directory: " + (fresh.path() / "run").string() +
        ", threads: 1, metrics: off, drain_timeout: 100ms, log_level: off}\n"
        "sources: {f: {type: feed, samples: 12, batch_size: 4, fields: [{name: x, dtype: "
        "int32}]}}\nstreams: {train: {source: f}}\n";
    server_ = server::session::Server::start(server::config::parse(text, "test.yaml").value()).value();
    thread_ = std::thread([this] { server_->run(); });
    FeedPeer peer(fresh.path() / "run" / "feed-f.sock");
    peer.greet();
    Stream stream = or_throw(
        or_throw(Client::connect({.address = (fresh.path() / "run").string()})).open({.stream = "train"}));
    peer.say(bytes);
    EXPECT_THAT(peer.hear().value("error", ""), HasSubstr(expected)) << bytes;
    const Error error = failure_of(stream);
    EXPECT_EQ(error.code, ErrorCode::kStreamFailed);
    EXPECT_THAT(error.message, HasSubstr("sent an invalid packet")) << bytes;
    EXPECT_THAT(error.message, HasSubstr(expected)) << bytes;
  }
}

TEST_F(LiveStream, APeerWithoutAHelloIsNotAFeeder) {
  for (const char* bytes : {"hello", "{}", R"({"feed": 2})", R"({"feed": "x"})"}) {
    FeedPeer stranger(door());
    ASSERT_TRUE(stranger.connected());
    stranger.say(bytes);
    EXPECT_NE(stranger.hear().value("error", ""), "") << bytes;
  }
  FeedPeer gone(door());
  gone.hang_up();
  FeedPeer peer(door());
  peer.greet();
  Stream stream = open();
  send(peer, 0, 0);
  EXPECT_EQ(first_of(stream), 0);
  EXPECT_FALSE(FeedPeer(door()).connected()) << "there is one feeder";
}

TEST_F(LiveStream, AServerEndsAtOnceWhileItsFeederSleeps) {
  FeedPeer peer(door());
  peer.greet();
  Stream stream = open();
  stop();  // hangs here otherwise
  EXPECT_TRUE(peer.hear().empty());
}

TEST_F(LiveStream, HasNoSampleToShowAndNoMemoryToResumeFrom) {
  auto client = or_throw(Client::connect({.address = directory()}));
  const auto sample = client.sample("train", 0, 0);
  ASSERT_FALSE(sample);
  EXPECT_THAT(sample.error().message, HasSubstr("there is none to show"));
  const auto resumed = client.open({.stream = "train", .resume_from_server = true});
  ASSERT_FALSE(resumed);
  EXPECT_THAT(resumed.error().message, HasSubstr("it cannot resume from the server's memory"));
}

}  // namespace
}  // namespace headrace::testing
