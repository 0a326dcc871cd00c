// Caches in a running server: clients get the same batches, and metrics show the caches' work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "headrace/client.h"
#include "server/config/config.h"
#include "server/session/server.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace {
namespace {

using server::config::parse;
using server::session::Server;
using ::testing::HasSubstr;
using ::testing::Not;

class CachedServer : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSamples = 30;

  void SetUp() override {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      const auto file = pixels::make_jpeg({.width = 60, .height = 50, .seed = i});
      folder_.put((i % 2 ? "photos/cat/" : "photos/dog/") + std::to_string(i) + ".jpg",
                  std::string(file.begin(), file.end()));
    }
  }

  /// `cache`: of the source, in YAML's flow style.
  [[nodiscard]] Result<std::unique_ptr<Server>> start(const std::string& cache) const {
    const std::string text =
        "server: { directory: " + (folder_.path() / "run").string() +
        ", threads: 2, metrics: off, drain_timeout: 100ms, log_level: error }\n"
        "sources: { photos: { type: image_folder, path: " +
        (folder_.path() / "photos").string() + cache +
        " } }\n"
        "streams:\n"
        "  train: { source: photos, batch_size: 8, transforms: [resize: {size: [32, 40]}, "
        "random_crop: {size: 24}] }\n"
        "  other: { source: photos, batch_size: 8, seed: 4, transforms: [resize: {size: "
        "[32, 40]}, random_resized_crop: {size: 16}] }\n";
    auto config = parse(text, "test.yaml");
    if (!config) return tl::make_unexpected(config.error());
    return Server::start(*config);
  }

  /// All bytes of `epochs` epochs of a stream.
  [[nodiscard]] std::string read(const std::string& stream, int epochs) const {
    auto client = Client::connect({.address = (folder_.path() / "run").string()});
    EXPECT_TRUE(client) << client.error().message;
    auto opened = client->open({.stream = stream});
    EXPECT_TRUE(opened) << opened.error().message;
    std::string all;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (;;) {
        auto batch = opened->next();
        EXPECT_TRUE(batch) << batch.error().message;
        if (!batch || !*batch) break;
        const auto values = or_throw((*batch)->values<std::uint8_t>("image"));
        all.append(values.begin(), values.end());
      }
    }
    return all;
  }

  TempFolder folder_;
};

/// Runs a server while it lives.
struct Running {
  explicit Running(Server& which) : server(which), thread([this] { server.run(); }) {}
  ~Running() {
    server.ask_to_stop();
    thread.join();
  }
  Server& server;
  std::thread thread;
};

TEST_F(CachedServer, ServesTheSameBytesAndCountsHitsMissesAndBytes) {
  std::string expected, other;
  {
    const auto server = start("");
    ASSERT_TRUE(server) << server.error().message;
    const Running running(**server);
    expected = read("train", 3);
    other = read("other", 1);
    EXPECT_THAT((*server)->collector().exposition(), Not(HasSubstr("headrace_cache")));
  }
  const auto server = start(", cache: { decoded: 1MB, encoded: 512KiB }");
  ASSERT_TRUE(server) << server.error().message;
  const Running running(**server);
  EXPECT_EQ(read("train", 3), expected);
  EXPECT_EQ(read("other", 1), other) << "from the first stream's cached samples";
  const auto stats = (*server)->collector().stats();
  ASSERT_EQ(stats["caches"].size(), 2U);
  const auto& encoded = stats["caches"][0];
  const auto& decoded = stats["caches"][1];
  EXPECT_EQ(encoded["kind"], "encoded");
  EXPECT_EQ(encoded["misses"], kSamples);
  EXPECT_EQ(encoded["hits"], 0) << "decoded samples are not read again";
  EXPECT_EQ(decoded["kind"], "decoded");
  EXPECT_EQ(decoded["source"], "photos");
  EXPECT_EQ(decoded["samples"], kSamples);
  EXPECT_EQ(decoded["misses"], kSamples) << "two streams, one decoding";
  EXPECT_GE(decoded["hits"].get<std::uint64_t>(), 3 * kSamples);
  EXPECT_EQ(decoded["budget_bytes"], 1'000'000 / 64 * 64);
  const auto bytes = decoded["bytes"].get<std::uint64_t>();
  EXPECT_GE(bytes, kSamples * 32 * 40 * 3);
  EXPECT_LE(bytes, kSamples * (32 * 40 * 3 + 128));
  const std::string metrics = (*server)->collector().exposition();
  for (const char* line : {"headrace_cache_misses_total{source=\"photos\",kind=\"decoded\"} 30",
                           "headrace_cache_samples{source=\"photos\",kind=\"decoded\"} 30",
                           "headrace_cache_budget_bytes{source=\"photos\",kind=\"encoded\"} 524288",
                           "# TYPE headrace_cache_hits_total counter", "# TYPE headrace_cache_bytes gauge"})
    EXPECT_THAT(metrics, HasSubstr(line));
}

TEST_F(CachedServer, KeepsARepeatedSampleOnce) {
  const auto text = [&](const std::string& photos, const std::string& repeated) {
    const std::string folder = folder_.path().string();
    return "server: { directory: " + folder +
           "/run, metrics: off }\nsources:\n  photos: { type: image_folder, path: " + folder + "/photos" +
           photos + " }\n  again: { type: repeat, of: photos, times: 4" + repeated +
           " }\n  some: { type: subset, of: again, first: 50 }\nstreams:\n"
           "  train: { source: some, batch_size: 8, transforms: [resize: {size: [32, 40]}, random_crop: "
           "{size: "
           "24}] }\n";
  };
  const auto serve = [&](const std::string& photos, const std::string& repeated) {
    return Server::start(*parse(text(photos, repeated), "test.yaml"));
  };
  std::string expected;
  {
    const auto server = serve("", "");
    ASSERT_TRUE(server) << server.error().message;
    const Running running(**server);
    expected = read("train", 3);
  }
  const std::string cache = ", cache: { decoded: 1MB }";
  for (const auto& [photos, repeated] : {std::pair{cache, std::string()}, {std::string(), cache}}) {
    const auto server = serve(photos, repeated);
    ASSERT_TRUE(server) << server.error().message;
    const Running running(**server);
    EXPECT_EQ(read("train", 3), expected);
    const auto stats = (*server)->collector().stats();
    ASSERT_EQ(stats["caches"].size(), 1U);
    EXPECT_EQ(stats["caches"][0]["source"], photos.empty() ? "again" : "photos");
    EXPECT_EQ(stats["caches"][0]["samples"], kSamples);
    EXPECT_EQ(stats["caches"][0]["misses"], kSamples) << "the 50 samples are 30, of which 20 come twice";
  }
}

/// Images of several tiles, and a stream of the given transforms over a source with that cache.
class TilingServer : public CachedServer {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      const auto file = pixels::make_jpeg({.width = 260, .height = 150, .seed = i});
      folder_.put("photos/cat/" + std::to_string(i) + ".jpg", std::string(file.begin(), file.end()));
    }
  }
  [[nodiscard]] std::unique_ptr<Server> serve(const std::string& cache, const std::string& transforms) const {
    const std::string text = "server: { directory: " + (folder_.path() / "run").string() +
                             ", threads: 2, metrics: off, drain_timeout: 100ms, log_level: error }\n"
                             "sources: { photos: { type: image_folder, path: " +
                             (folder_.path() / "photos").string() + ", cache: " + cache +
                             " }, some: { type: subset, of: photos, first: 20 } }\n"
                             "streams: { train: { source: some, batch_size: 4, transforms: [" +
                             transforms + "] } }\n";
    return Server::start(parse(text, "test.yaml").value()).value();
  }
  static nlohmann::json cache_of(Server& server) { return server.collector().stats()["caches"][0]; }
};

TEST_F(TilingServer, RewritesWhatItsStreamsCropOnceClientsLeaveItTimeAndServesTheSame) {
  const std::string crop = "random_resized_crop: { size: 32 }";
  std::string expected;
  {
    const auto server = serve("{ encoded: 4MB, tile: false }", crop);
    const Running running(*server);
    expected = read("train", 3);
    EXPECT_FALSE(cache_of(*server).contains("tiled_images"));
    EXPECT_THAT(server->collector().exposition(), Not(HasSubstr("tile")));
  }
  const auto server = serve("{ encoded: 4MB }", crop);
  const Running running(*server);
  EXPECT_EQ(read("train", 3), expected);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (cache_of(*server)["tiled_images"] < 20 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(read("train", 3), expected) << "from tiles";
  const auto stats = cache_of(*server);
  EXPECT_EQ(stats["tiled_images"], 20);
  EXPECT_EQ(stats["untiled_images"], 0);
  EXPECT_EQ(stats["samples_to_tile"], 0);
  EXPECT_EQ(stats["misses"], 20);
  EXPECT_GT(stats["tiling_seconds"], 0.0);
  EXPECT_LE(stats["tiled_bytes"], stats["bytes"]);
  const std::string metrics = server->collector().exposition();
  for (const char* line :
       {"headrace_cache_tiled_images{source=\"photos\",kind=\"encoded\"} 20",
        "headrace_cache_untiled_images{source=\"photos\",kind=\"encoded\"} 0",
        "headrace_cache_samples_to_tile{source=\"photos\",kind=\"encoded\"} 0",
        "# TYPE headrace_cache_tiling_seconds_total counter", "# TYPE headrace_cache_tiled_bytes gauge"})
    EXPECT_THAT(metrics, HasSubstr(line));
}

TEST_F(TilingServer, LeavesImagesOfWhichNothingIsCroppedOrWhosePixelsAreKept) {
  for (const auto& [cache, transforms] : std::vector<std::pair<std::string, std::string>>{
           {"{ encoded: 4MB }", "resize: { size: [32, 32] }, random_horizontal_flip: {}"},
           {"{ encoded: 4MB }", "color_jitter: { brightness: 0.5 }, random_resized_crop: { size: 32 }"},
           {"{ encoded: 4MB, decoded: 8MB }", "random_resized_crop: { size: 32 }"}}) {
    const auto server = serve(cache, transforms);
    EXPECT_FALSE(cache_of(*server).contains("samples_to_tile")) << transforms;
  }
}

TEST(TilingConfig, IsOfTheCacheThatKeepsFiles) {
  const auto wrong = parse(
      "sources: { s: { type: image_folder, path: /x, cache: { decoded: 1GB, tile: true } } }\n"
      "streams: { t: { source: s, transforms: [center_crop: { size: 8 }] } }\n",
      "x.yaml");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(
      wrong.error().message,
      HasSubstr("x.yaml:1:70: sources.s.cache.tile: it is the cache `encoded` that keeps JPEGs; give it "
                "a budget, or leave this out"));
}

TEST_F(CachedServer, RefusesBudgetsThatHoldNoSampleOrThatNoMachineHas) {
  const auto small = start(", cache: { decoded: 2kB }");
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, ErrorCode::kConfigInvalid);
  EXPECT_THAT(small.error().message,
              HasSubstr("source `photos`: cache.decoded: 2000 bytes do not hold even one "
                        "sample, which takes 3904"));
  const auto large = start(", cache: { decoded: 1TB }");
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kNotEnoughMemory);
  EXPECT_THAT(large.error().message, HasSubstr("1.00 TB may be needed beside the rings (caches 1.00 TB"));
  EXPECT_THAT(large.error().message, ::testing::EndsWith(": lower source `photos`, cache.decoded"));
}

}  // namespace
}  // namespace headrace
