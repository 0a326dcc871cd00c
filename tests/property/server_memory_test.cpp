// The server's memory of what clients have consumed: where resume="server" continues.
#include <gtest/gtest.h>

#include "tests/engine_fixture.h"

namespace headrace::testing {
namespace {

/// A client whose loop is behind what it has fetched.
class Loop {
 public:
  Loop() {
    std::vector<std::unique_ptr<Stream>> streams;
    streams.push_back(Stream::create(synthetic_stream("s", 1000, 4, 2)).value());
    engine_ = std::make_unique<Engine>(std::move(streams), 1);  // not started: this is its worker
    RingClient client(*engine_, "s", "c");
    for (int i = 0; i < 3; ++i) {
      make_batches();
      const auto grant = client.next(std::chrono::milliseconds(0));
      if (grant) client.reader().ack(*grant);
      EXPECT_TRUE(grant);
    }
    client.reader().commit({0, 0, 1});
  }

  Cursor open(const wire::OpenRequest& how) {
    wire::OpenRequest request = how;
    request.stream = "s";
    request.group = request.client = "c";
    const auto reply = engine_->open(0, request).value();
    lane_ = reply.lane;
    return reply.cursor;
  }
  Cursor resume() { return open({.resume_server = true}); }
  void seek(const Cursor& cursor) {
    engine_->with(0, [&](Stream& stream) { return stream.seek(lane_, cursor); });
  }
  void attach() {
    auto lease = engine_->stream(0).make_lease().value();
    engine_->with(0, [&](Stream& stream) { return stream.lanes().attach(lane_, std::move(lease), 1); });
  }
  void end() {
    engine_->with(0, [&](Stream& stream) {
      stream.close(lane_, ring::monotonic_ns());
      return 0;
    });
  }

 private:
  void make_batches() {
    const auto one = [&] {
      return engine_->with(0, [&](Stream& stream) {
        stream.pump(1);
        const auto job = stream.next_job(1);
        if (job && job->work(scratch_, counters_, ~std::uint64_t{0})) stream.complete(*job, counters_);
        return job != nullptr;
      });
    };
    while (one()) continue;
  }

  std::unique_ptr<Engine> engine_;
  std::uint32_t lane_ = 0;
  server::exec::RowScratch scratch_;
  server::metrics::StreamCounters counters_;
};

constexpr Cursor kConsumed{0, 0, 1}, kFetched{0, 0, 3};

TEST(ServerMemory, OutlivesAClientThatEndsBeforeItAttachesAgain) {
  Loop loop;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(loop.open({.position = kFetched}), kFetched);
    loop.end();
  }
  EXPECT_EQ(loop.resume(), kConsumed);
}

TEST(ServerMemory, OutlivesAClientThatEndsBeforeItCommitsAgain) {
  Loop loop;
  EXPECT_EQ(loop.open({.position = kFetched}), kFetched);
  loop.attach();
  loop.end();
  EXPECT_EQ(loop.resume(), kConsumed);
}

TEST(ServerMemory, FollowsAClientThatGoesElsewhere) {
  Loop loop;
  const Cursor far{5, 0, 7};
  EXPECT_EQ(loop.open({.position = far}), far);
  loop.end();
  EXPECT_EQ(loop.resume(), far);
  loop.attach();
  loop.seek({0, 0, 2});
  loop.end();
  EXPECT_EQ(loop.resume(), (Cursor{0, 0, 2}));
}

}  // namespace
}  // namespace headrace::testing
