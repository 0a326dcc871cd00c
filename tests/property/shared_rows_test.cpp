// Rows made in two parts equal rows made at once, and each stream has the same batches whether it shares rows
// or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "server/log/log.h"
#include "server/source/formats/image_folder.h"
#include "server/transform/chain_parts.h"
#include "tests/device_chains.h"
#include "tests/engine_fixture.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

namespace decode = server::decode;
using namespace server::transform;

using server::exec::RowWindow;
using server::exec::share_fields;
using server::transform::testing::ChainMaker;
using server::transform::testing::random_picture;

TEST(ChainParts, MakeTheWholeChainsRows) {
  ChainMaker maker(29);
  Scratch scratch;
  int compared = 0;
  for (int round = 0; round < 1500; ++round) {
    PlanConfig config = maker.chain();
    const decode::ImageSize size{maker.side(300), maker.side(300)};
    if (round % 4 == 0)  // the limit concerns what is read, not what is made
      config.max_pixels = static_cast<std::uint64_t>(size.width) * static_cast<std::uint64_t>(size.height);
    const auto whole = Plan::compile(config);
    ASSERT_TRUE(whole) << whole.error().to_string();
    const auto pixels = random_picture(size.width, size.height, config.channels, maker.random());
    const decode::ImageData image(pixels, {size.width, size.height, config.channels, false});
    const DrawKey key{maker.random()(), 3, static_cast<std::uint64_t>(round)};
    std::vector<std::byte> expected(whole->row_bytes());
    if (whole->render(image, key, scratch, expected.data()).bad != BadReason::kNone) continue;
    for (std::size_t count = 0; count <= shareable_transforms(config.transforms); ++count) {
      const auto first = Plan::compile(first_part(config, count));
      if (!first) continue;  // images still have different sizes
      const Size between = first->output_size();
      const auto second = Plan::compile(second_part(config, count, between));
      ASSERT_TRUE(second) << second.error().to_string();
      std::vector<std::byte> shared(first->row_bytes()), row(second->row_bytes());
      ASSERT_EQ(first->render(image, key, scratch, shared.data()).bad, BadReason::kNone);
      const decode::ImageData middle(
          std::span(reinterpret_cast<const std::uint8_t*>(shared.data()), shared.size()),
          {between.width, between.height, config.channels, false});
      const auto report = second->render(middle, key, scratch, row.data());
      ASSERT_EQ(report.bad, BadReason::kNone) << report.detail;
      ASSERT_EQ(row, expected) << "round " << round << ", cut after " << count << " of "
                               << config.transforms.size();
      ++compared;
    }
  }
  EXPECT_GT(compared, 3000);
}

class SharedRows : public ::testing::Test {
 protected:
  void SetUp() override {
    server::log::info("rows for others");  // ThreadSanitizer does not see how libspdlog initializes itself
    for (std::uint32_t i = 0; i < 40; ++i) {
      auto file = pixels::make_jpeg({.width = 90, .height = 70, .seed = i});
      if (i % 13 == 5) file.resize(file.size() / 3);  // bad: replaced by another sample
      const auto path = folder_.path() / (i % 2 ? "cat" : "dog") / (std::to_string(100 + i) + ".jpg");
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
    }
  }

  /// `more`: transforms after a crop and a flip.
  StreamSetup stream(const std::string& name, std::uint32_t batch, Output output, std::vector<Transform> more,
                     const std::shared_ptr<RowWindow>& window, std::uint32_t number,
                     Delivery delivery = Delivery::kBroadcast) {
    const auto source = server::source::open_image_folder(folder_.path()).value();
    StreamPlan plan;
    plan.chain.transforms = {make_op("random_resized_crop", {{"size", {24, 24}}}),
                             make_op("random_horizontal_flip")};
    for (Transform& transform : more) plan.chain.transforms.push_back(std::move(transform));
    plan.chain.output = output;
    auto plans = server::exec::plan_fields(*source, plan, batch).value();
    auto shared = share_fields(*source, plans, 2);
    auto maker = std::make_shared<SampleMaker>(source, std::move(plans),
                                               server::exec::SampleOptions{.seed = 5, .max_bad = 1});
    if (window) maker->share(std::move(*shared), window, number);
    StreamSetup setup;
    setup.info = {.name = name,
                  .delivery = delivery,
                  .samples = source->size(),
                  .batch_size = batch,
                  .fields = maker->fields()};
    setup.maker = std::move(maker);
    setup.ledger = {.lanes = 3,
                    .max_leases = 2,
                    .prefetch = 2,
                    .broadcast = delivery == Delivery::kBroadcast,
                    .max_lag = 2};
    return setup;
  }

  std::vector<StreamSetup> streams(const std::shared_ptr<RowWindow>& window) {
    const Transform colors = make_op("color_jitter", {{"brightness", 0.4}, {"hue", 0.1}});
    const Transform normalize =
        make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}});
    std::vector<StreamSetup> out;
    out.push_back(stream("plain", 8, {}, {}, window, 0));
    out.push_back(stream("colors", 5, {DType::kFloat32, PixelLayout::kNchw}, {colors, normalize}, window, 1));
    out.push_back(stream("halves", 16, {DType::kFloat16, PixelLayout::kNhwc}, {}, window, 2));
    out.push_back(stream("ranks", 4, {}, {colors}, window, 3, Delivery::kShard));
    return out;
  }

  std::shared_ptr<RowWindow> window(std::uint64_t rows) {
    return std::make_shared<RowWindow>(rows * (1728 + 160), 1728, 40, 4);
  }

  /// The digests of clients that begin at different places: three of `plain`, one or two of each other
  /// stream.
  std::vector<std::uint64_t> digests(const std::shared_ptr<RowWindow>& window,
                                     std::uint64_t* shared = nullptr) {
    auto engine = start_engine(streams(window), 2);
    struct Part {
      std::string stream;
      Cursor begin;
      int batches;
      std::uint32_t rank = 0, world = 1;
      int pause_us = 0;
    };
    const std::vector<Part> parts{{"plain", {0, 0, 0}, 40},
                                  {"plain", {0, 0, 3}, 30, 0, 1, 300},
                                  {"plain", {2, 0, 1}, 30},
                                  {"colors", {0, 0, 0}, 60},
                                  {"halves", {1, 0, 0}, 20, 0, 1, 500},
                                  {"ranks", {0, 0, 0}, 30, 0, 2},
                                  {"ranks", {0, 0, 0}, 30, 1, 2, 200}};
    std::vector<std::unique_ptr<RingClient>> clients;
    for (const Part& part : parts)
      clients.push_back(std::make_unique<RingClient>(
          *engine, part.stream, "c" + std::to_string(clients.size()), part.rank, part.world));
    std::vector<std::uint64_t> out(parts.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < parts.size(); ++i)
      threads.emplace_back([&, i] {
        Digest digest;
        clients[i]->seek(parts[i].begin);
        for (int batch = 0; batch < parts[i].batches; ++batch) {
          const auto grant = clients[i]->next();
          if (!grant) break;
          digest.add_batch(clients[i]->reader(), *grant);
          std::this_thread::sleep_for(std::chrono::microseconds(parts[i].pause_us));
          clients[i]->reader().ack(*grant);
        }
        out[i] = digest.value();
        clients[i]->leave();
      });
    for (auto& thread : threads) thread.join();
    for (std::size_t i = 0; i < engine->stream_count(); ++i) {
      EXPECT_FALSE(engine->stream(i).failed()) << engine->stream(i).failure().to_string();
      if (shared != nullptr) *shared += engine->totals(i).shared;
    }
    return out;
  }

  TempFolder folder_;
};

TEST_F(SharedRows, AreEachStreamsOwn) {
  const auto alone = digests(nullptr);
  for (const std::uint64_t rows : {0, 1, 7, 60, 10'000}) {
    std::uint64_t shared = 0;
    const auto kept = window(rows);
    EXPECT_EQ(digests(kept, &shared), alone) << rows << " rows";
    EXPECT_EQ(shared > 0, rows > 0) << shared << " of " << rows;
    kept->trim();
    EXPECT_TRUE(kept->empty()) << "all readers have left";
  }
}

TEST_F(SharedRows, AreNotKeptForClientsInStep) {
  const auto kept = window(10'000);
  std::vector<StreamSetup> setups;
  setups.push_back(stream("plain", 8, {}, {}, kept, 0));
  // `a` may be granted 3 batches before `b` gets its first, and clients beyond half of max_lag are not in
  // step.
  setups[0].ledger.prefetch = setups[0].ledger.max_lag = 8;
  auto engine = start_engine(std::move(setups), 2);
  RingClient ahead(*engine, "plain", "a"), behind(*engine, "plain", "b");
  ASSERT_TRUE(ahead.next());  // `b` has not begun to read
  for (int batch = 0; batch < 50; ++batch) {
    for (RingClient* client : {&ahead, &behind}) {
      const auto grant = client->next();
      ASSERT_TRUE(grant);
      client->reader().ack(*grant);
    }
  }
  EXPECT_EQ(engine->totals(0).shared, 0);
  EXPECT_TRUE(kept->empty());
  EXPECT_EQ(kept->used(), 0);
}

TEST_F(SharedRows, AreDecodedOnceForStreamsThatKeepPace) {
  const auto kept = window(10'000);
  std::vector<StreamSetup> setups = streams(kept);
  setups.erase(setups.begin() + 3);
  auto engine = start_engine(std::move(setups), 1);
  std::vector<std::unique_ptr<RingClient>> clients;
  for (const char* name : {"plain", "colors", "halves"})
    clients.push_back(std::make_unique<RingClient>(*engine, name, name));
  std::vector<std::thread> threads;
  const std::uint64_t epochs = 3;
  for (auto& client : clients)
    threads.emplace_back([&] {
      while (const auto grant = client->next()) {
        client->reader().ack(*grant);
        if (grant->epoch == epochs) break;
      }
    });
  for (auto& thread : threads) thread.join();
  std::uint64_t samples = 0, shared = 0, replaced = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    samples += engine->totals(i).samples;
    shared += engine->totals(i).shared;
    replaced += engine->totals(i).replaced;
  }
  EXPECT_GE(samples, 3 * epochs * 40);
  // Two thirds of the three streams' rows are shared. Rows from before the last client attached are not, nor
  // are rows that replace bad samples.
  EXPECT_GT(shared + replaced, samples / 2);
}

}  // namespace
}  // namespace headrace::testing
