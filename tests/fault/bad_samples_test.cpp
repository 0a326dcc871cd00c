// Bad content is replaced deterministically and marked, or stops the stream by name; I/O errors are never
// replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "server/source/formats/image_folder.h"
#include "server/transform/ops/ops.h"
#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using server::exec::OnError;
using server::exec::SampleOptions;
using server::source::Source;
using server::transform::BadReason;
using ::testing::HasSubstr;

void write(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

class BadSamples : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t i = 0; i < 40; ++i)
      write(root_ / (i % 2 ? "cat" : "dog") / (std::to_string(100 + i) + ".jpg"),
            pixels::make_jpeg({.width = 50, .height = 40, .seed = i}));
  }

  void add_bad_files() {
    std::vector<std::uint8_t> good = pixels::make_jpeg({.width = 200, .height = 200, .seed = 77});
    write(root_ / "cat/bad_empty.jpg", {});
    write(root_ / "cat/bad_text.jpg", {'h', 'e', 'l', 'l', 'o', ' ', 'w', 'o', 'r', 'l', 'd', '\n'});
    write(root_ / "cat/bad_truncated.jpg",
          {good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 3)});
    std::vector<std::uint8_t> gigantic = good;  // a header of 65,500 x 65,500
    for (std::size_t i = 0; i + 9 < gigantic.size(); ++i)
      if (gigantic[i] == 0xFF && gigantic[i + 1] == 0xC0) {
        gigantic[i + 5] = gigantic[i + 7] = 65500 >> 8;
        gigantic[i + 6] = gigantic[i + 8] = 65500 & 255;
        break;
      }
    write(root_ / "cat/bad_gigantic.jpg", gigantic);
  }

  StreamSetup stream(const SampleOptions& options, std::shared_ptr<const Source> source = nullptr) {
    if (!source) source = server::source::open_image_folder(root_).value();
    server::transform::StreamPlan plan;
    plan.chain.transforms = {server::transform::make_op("random_resized_crop", {{"size", {24, 24}}})};
    StreamSetup setup;
    setup.maker = make_samples(source, options, plan);
    setup.info = {.name = "s", .samples = source->size(), .batch_size = 8, .fields = setup.maker->fields()};
    setup.ledger = {.lanes = 2, .max_leases = 3, .prefetch = 4};
    return setup;
  }

  TempFolder folder_;
  const fs::path root_ = folder_.path();
};

/// The digest of one epoch, and the rows that replace bad samples.
struct Seen {
  std::uint64_t digest = 0, replaced = 0, rows = 0;
  std::map<std::uint64_t, int> samples;
};

Seen epoch_of(Engine& engine) {
  RingClient client(engine, "s", "c");
  Seen seen;
  Digest digest;
  for (std::uint64_t i = 0; i < client.opened().epoch_length; ++i) {
    const auto grant = client.next();
    if (!grant) {
      ADD_FAILURE() << "no batch " << i << ": " << engine.stream(0).failure().message;
      break;
    }
    digest.add_batch(client.reader(), *grant);
    const ring::RowDesc* rows = client.reader().rows(grant->slot);
    for (std::uint32_t r = 0; r < client.reader().slot(grant->slot).rows; ++r) {
      ++seen.rows;
      seen.replaced += (rows[r].flags & ring::kRowReplaced) != 0;
      ++seen.samples[rows[r].sample_index];
    }
    client.reader().ack(*grant);
  }
  seen.digest = digest.value();
  return seen;
}

TEST_F(BadSamples, AreReplacedMarkedAndCountedByReason) {
  add_bad_files();
  auto engine = start_engine({stream({.seed = 3, .max_bad = 0.5})}, 2);
  const Seen seen = epoch_of(*engine);
  EXPECT_EQ(seen.rows, 44U);
  EXPECT_EQ(seen.replaced, 4U);
  const auto totals = engine->totals(0);
  for (const BadReason reason :
       {BadReason::kEmpty, BadReason::kUnknownFormat, BadReason::kTruncated, BadReason::kTooLarge})
    EXPECT_GE(totals.errors[static_cast<std::size_t>(reason)], 1U) << name_of(reason);
}

TEST_F(BadSamples, AreReplacedByTheSameSamplesForAnyThreadsAndRestarts) {
  add_bad_files();
  std::uint64_t first = 0;
  for (const unsigned threads : {1U, 2U, 4U}) {
    auto engine = start_engine({stream({.seed = 3, .max_bad = 0.5})}, threads);
    const Seen seen = epoch_of(*engine);
    if (!first) first = seen.digest;
    EXPECT_EQ(seen.digest, first) << threads << " threads";
  }
}

TEST_F(BadSamples, LeaveEveryGoodSampleAtItsPosition) {
  add_bad_files();
  auto engine = start_engine({stream({.seed = 3, .max_bad = 0.5})}, 2);
  const Seen seen = epoch_of(*engine);
  EXPECT_EQ(seen.samples.size(), 40U) << "each good sample is there, bad ones are not";
}

TEST_F(BadSamples, StopTheStreamByNameWhereThePolicySaysFail) {
  add_bad_files();
  auto engine = start_engine({stream({.seed = 3, .on_error = OnError::kFail})}, 2);
  RingClient client(*engine, "s", "c");
  for (int i = 0; i < 10; ++i)
    if (const auto grant = client.next(std::chrono::seconds(2))) client.reader().ack(*grant);
  ASSERT_TRUE(engine->stream(0).failed());
  const std::string message = engine->stream(0).failure().message;
  EXPECT_NE(message.find("bad_"), std::string::npos) << message;
  EXPECT_NE(message.find("on_error"), std::string::npos) << message;
}

TEST_F(BadSamples, StopTheStreamAtTheThresholdWithTheFirstTen) {
  fs::remove_all(root_);
  for (int i = 0; i < 30; ++i) write(root_ / "cat" / (std::to_string(i) + ".jpg"), {'n', 'o'});
  // One worker, because two might both pass the threshold.
  auto engine = start_engine({stream({.seed = 3, .max_bad = 0.4})}, 1);
  RingClient client(*engine, "s", "c");
  EXPECT_FALSE(client.next(std::chrono::seconds(5)));
  const std::string message = engine->stream(0).failure().message;
  EXPECT_NE(message.find("13 of 30 samples are bad"), std::string::npos) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 10) << message;
}

TEST_F(BadSamples, AFileThatVanishesStopsTheStreamAndIsNamed) {
  auto setup = stream({.seed = 3});
  fs::remove(root_ / "cat/101.jpg");
  auto engine = start_engine({std::move(setup)}, 2);
  RingClient client(*engine, "s", "c");
  for (int i = 0; i < 10; ++i)
    if (const auto grant = client.next(std::chrono::seconds(2))) client.reader().ack(*grant);
  ASSERT_TRUE(engine->stream(0).failed());
  const std::string message = engine->stream(0).failure().message;
  EXPECT_NE(message.find("DATASET_INVALID"), std::string::npos) << message;
  EXPECT_NE(message.find("101.jpg"), std::string::npos) << message;
}

TEST_F(BadSamples, ThatAreOnlyShownDoNotBringTheStreamNearerToItsEnd) {
  add_bad_files();
  const auto setup = stream({.seed = 3, .max_bad = 0.05});  // of 44: two
  const SampleMaker& maker = *setup.maker;
  server::exec::LooseRow row(maker);
  server::exec::RowScratch scratch;
  int replaced = 0;
  for (std::uint64_t i = 0; i < maker.size(); ++i) {
    const auto shown = maker.show(0, i, row.fields, scratch);
    ASSERT_TRUE(shown) << shown.error().message;
    replaced += shown->replaced;
  }
  EXPECT_EQ(replaced, 4);
  server::metrics::StreamCounters counters;
  int served = 0;
  for (std::uint64_t i = 0; i < maker.size() && served < 2; ++i) {
    const auto made = maker.make(maker.order(0), 0, i, row.fields, scratch, counters);
    ASSERT_TRUE(made) << "two bad samples are allowed: " << made.error().message;
    served += made->replaced;
  }
}

/// Forwards all reads, except for one sample, whose read fails.
class FailingSource final : public ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    if (index == 7) return fail(ErrorCode::kTransientIo, "cat/107.jpg: Input/output error after 3 tries");
    return ForwardingSource::read(index, out);
  }
};

TEST_F(BadSamples, AnIoErrorStopsTheStreamAndIsNeverReplaced) {
  auto source = std::make_shared<FailingSource>(server::source::open_image_folder(root_).value());
  auto engine = start_engine({stream({.seed = 3, .on_error = OnError::kReplace, .max_bad = 1}, source)}, 2);
  RingClient client(*engine, "s", "c");
  for (int i = 0; i < 10; ++i) {
    const auto grant = client.next(std::chrono::seconds(2));
    if (!grant) break;
    for (std::uint32_t r = 0; r < client.reader().slot(grant->slot).rows; ++r)
      EXPECT_FALSE(client.reader().rows(grant->slot)[r].flags & ring::kRowReplaced);
    client.reader().ack(*grant);
  }
  ASSERT_TRUE(engine->stream(0).failed());
  EXPECT_NE(engine->stream(0).failure().message.find("TRANSIENT_IO"), std::string::npos);
}

/// A source that breaks its contract.
class ThrowingSource final : public ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t, server::source::Sample&) const override {
    throw std::runtime_error("out of order");
  }
};

TEST_F(BadSamples, AWorkerThatThrowsStopsItsStreamByNameAndNoOther) {
  auto source = std::make_shared<ThrowingSource>(server::source::open_image_folder(root_).value());
  std::vector<StreamSetup> setups;
  setups.push_back(stream({.seed = 3}, source));
  setups.push_back(synthetic_stream("other", 100, 10, 1));
  auto engine = start_engine(std::move(setups), 2);
  RingClient client(*engine, "s", "c"), other(*engine, "other", "c");
  EXPECT_FALSE(client.next(std::chrono::seconds(5)));
  EXPECT_THAT(engine->stream(0).failure().message, HasSubstr("INTERNAL"));
  EXPECT_THAT(engine->stream(0).failure().message, HasSubstr("a worker threw: out of order"));
  for (int i = 0; i < 20; ++i) {
    const auto grant = other.next();
    ASSERT_TRUE(grant);
    other.reader().ack(*grant);
  }
}

}  // namespace
}  // namespace headrace::testing
