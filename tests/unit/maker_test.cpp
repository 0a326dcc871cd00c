// A Maker makes the batches that a server hands out.
#include "headrace/maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "headrace/client.h"
#include "tests/batch_content.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/running_server.h"
#include "tests/temp_folder.h"
#include "tests/web_server.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kSamples = 30;

class MakerTest : public ::testing::Test {
 protected:
  /// A folder of JPEGs of two classes, and a table with their captions and ages.
  void SetUp() override {
    std::string table = "file,label,age,caption\n";
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      const auto file = pixels::make_jpeg({.width = 60, .height = 50, .seed = i});
      const std::string name = (i % 2 ? "cat/" : "dog/") + std::to_string(100 + i) + ".jpg";
      folder_.put("photos/" + name, std::string(file.begin(), file.end()));
      table += "photos/" + name + (i % 2 ? ",cat," : ",dog,") + std::to_string(i) + "," +
               std::string(i % 7, 'x') + "\n";
    }
    folder_.put("table.csv", table);
  }

  [[nodiscard]] std::string photos(const std::string& train) const {
    return "sources: { photos: { type: image_folder, path: " + (folder_.path() / "photos").string() +
           " } }\nstreams: { train: { source: photos, " + train + " } }\n";
  }
  [[nodiscard]] std::string table(const std::string& train) const {
    return "sources: { table: { type: manifest, path: " + (folder_.path() / "table.csv").string() +
           ", fields: { image: { column: file }, label: { kind: class }, age: { kind: value, dtype: int16 }, "
           "caption: { kind: text } } } }\nstreams: { train: { source: table, " +
           train + " } }\n";
  }

  [[nodiscard]] Result<Maker> maker(const std::string& config, MakerOptions options = {}) const {
    return Maker::open(folder_.put("train.yaml", config).string(), options);
  }

  /// Two epochs of each rank, with one thread and with three.
  void expect_equal(const std::string& config, std::uint32_t world_size = 1) const {
    const RunningServer server(folder_.path() / "run", config);
    std::vector<Maker> makers;
    for (const std::uint32_t threads : {1U, 3U})
      makers.push_back(or_throw(maker(config, {.stream = "train", .threads = threads})));
    auto client = or_throw(Client::connect({.address = (folder_.path() / "run").string()}));
    std::vector<Stream> ranks;
    for (std::uint32_t rank = 0; rank < world_size; ++rank)
      ranks.push_back(or_throw(client.open({.stream = "train", .rank = rank, .world_size = world_size})));
    EXPECT_EQ(makers[0].info().fingerprint, ranks[0].info().fingerprint);
    EXPECT_EQ(makers[0].info().fields, ranks[0].info().fields);
    EXPECT_EQ(makers[0].info().classes, ranks[0].info().classes);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::uint64_t> count(world_size);
      for (std::uint64_t k = 0; k < ranks[0].epoch_length(); ++k)
        for (std::uint32_t rank = 0; rank < world_size; ++rank) {
          const auto served = or_throw(ranks[rank].next());
          ASSERT_TRUE(served);
          for (const Maker& one : makers) {
            const BatchView made = or_throw(one.batch(epoch, k, world_size, rank));
            EXPECT_EQ(made.batch(), served->batch());
            EXPECT_EQ(content_of(made), content_of(*served)) << "epoch " << epoch << " batch " << k;
          }
        }
      for (Stream& rank : ranks) EXPECT_FALSE(or_throw(rank.next()));
      EXPECT_EQ(makers[0].length(world_size).value(), ranks[0].epoch_length());
    }
  }

  /// Two epochs of rows that a Maker makes without the data, from what another one reads. Returns how many of
  /// them count as replaced; the others must equal those of the one with the data.
  int expect_equal_elsewhere(const std::string& config, const MakerOptions& options = {}) const {
    const Maker here = or_throw(maker(config, options));
    MakerOptions other = options;
    other.threads = 3;
    other.source = or_throw(here.describe_source());
    std::string moved = config;
    for (std::size_t at = 0; (at = moved.find(folder_.path().string(), at)) != std::string::npos;)
      moved.replace(at, folder_.path().string().size(), "/nowhere");
    const Maker there = or_throw(maker(moved, other));
    EXPECT_EQ(here.info().fingerprint, there.info().fingerprint);
    EXPECT_EQ(here.info().fields, there.info().fields);
    EXPECT_EQ(here.info().classes, there.info().classes);
    EXPECT_EQ(here.info().samples, there.info().samples);
    int replaced = 0;
    const auto samples = static_cast<std::uint32_t>(here.info().samples);
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
      for (std::uint32_t first = 0, count = 1; first < samples; first += count, ++count) {
        const std::uint32_t rows = std::min(count, samples - first);
        const BatchView made =
            or_throw(there.rows_of(or_throw(here.samples(epoch, first, rows)), epoch, first, rows));
        const BatchView expected = or_throw(here.rows(epoch, first, rows));
        for (std::uint32_t row = 0; row < rows; ++row) {
          EXPECT_EQ(made.all_rows()[row].replaced, expected.all_rows()[row].replaced);
          replaced += made.all_rows()[row].replaced ? 1 : 0;
        }
        if (std::ranges::none_of(made.all_rows(), &RowInfo::replaced)) {
          EXPECT_EQ(content_of(made), content_of(expected)) << "epoch " << epoch << ", position " << first;
        }
      }
    return replaced;
  }

  TempFolder folder_;
};

TEST_F(MakerTest, MakesTheServersBatchesOfRawBytes) {
  expect_equal(
      "sources: { rows: { type: synthetic, count: 100, bytes: 24 } }\n"
      "streams: { train: { source: rows, batch_size: 8 } }\n");
}

TEST_F(MakerTest, MakesTheServersBatchesOfAugmentedImages) {
  expect_equal(photos("batch_size: 8, transforms: [random_resized_crop: 24, random_horizontal_flip]"));
}

TEST_F(MakerTest, MakesTheServersBatchesOfNormalizedImages) {
  expect_equal(photos(
      "batch_size: 7, last: pad, transforms: [random_crop: {size: 24}, normalize: {mean: [0.5, 0.4, 0.3], "
      "std: [0.2, 0.2, 0.2]}], output: {dtype: float32}"));
}

TEST_F(MakerTest, MakesTheServersBatchesOfMixedImages) {
  expect_equal(
      photos("batch_size: 7, transforms: [center_crop: 24], output: {dtype: float32}, "
             "mix: {mixup: {alpha: 0.4}, cutmix: {alpha: 1.0}, p: 0.8}"));
}

TEST_F(MakerTest, MakesTheServersBatchesOfTextAndValues) {
  expect_equal(table("batch_size: 8, transforms: [center_crop: 24]"));
}

TEST_F(MakerTest, RunsDeviceTransformsOnTheCpu) {
  const std::string train =
      "batch_size: 8, transforms: [random_crop: {size: 24}, random_horizontal_flip], output: {dtype: "
      "float32}";
  const Maker here = maker(photos(train)).value();
  const Maker there = maker(photos(train + ", device: gpu")).value();
  EXPECT_TRUE(there.info().on_device.empty());
  EXPECT_EQ(here.info().fingerprint, there.info().fingerprint);
  EXPECT_EQ(content_of(here.batch(1, 0).value()), content_of(there.batch(1, 0).value()));
}

TEST_F(MakerTest, MakesTheServersBatchesOfEachRank) {
  for (const char* const last : {"short", "pad", "drop"})
    expect_equal(
        photos("batch_size: 4, delivery: shard, transforms: [center_crop: 24], last: " + std::string(last)),
        3);
}

TEST_F(MakerTest, ReplacesBadSamplesAsTheServerDoes) {
  folder_.put("photos/cat/101.jpg", "no image");
  folder_.put("photos/dog/116.jpg", "no image");
  expect_equal(photos("batch_size: 8, transforms: [center_crop: 24]"));
  const Maker made = maker(photos("batch_size: 8, transforms: [center_crop: 24]")).value();
  int replaced = 0;
  for (const RowInfo& row : made.rows(0, 0, kSamples).value().all_rows()) replaced += row.replaced ? 1 : 0;
  EXPECT_EQ(replaced, 2);
}

TEST_F(MakerTest, MakesTheSameRowsAloneAndInBatches) {
  const Maker made =
      maker(table("batch_size: 8, transforms: [random_crop: {size: 24}]"), {.threads = 2}).value();
  const BatchView all = made.rows(3, 0, kSamples).value();
  EXPECT_EQ(all.valid_rows(), kSamples);
  const FieldView text = all.field("caption").value();
  for (std::uint64_t k = 0; k < made.length().value(); ++k) {
    const BatchView batch = made.batch(3, k).value();
    EXPECT_EQ(content_of(made.rows(3, 8 * k, batch.rows()).value()), content_of(batch));
    const auto image = batch.values<std::uint8_t>("image").value();
    const auto part = all.values<std::uint8_t>("image").value().subspan(k * 8 * 24 * 24 * 3, image.size());
    EXPECT_TRUE(std::equal(image.begin(), image.end(), part.begin()));
    const FieldView some = batch.field("caption").value();
    for (std::uint32_t row = 0; row < batch.rows(); ++row) {
      EXPECT_EQ(batch.sample_index(row), all.sample_index(8 * static_cast<std::uint32_t>(k) + row));
      EXPECT_EQ(some.offsets[row + 1] - some.offsets[row],
                text.offsets[8 * k + row + 1] - text.offsets[8 * k + row]);
    }
  }
}

TEST_F(MakerTest, BatchesOutliveTheMaker) {
  std::optional<Maker> made = maker(photos("batch_size: 8, transforms: [center_crop: 24]")).value();
  BatchView batch = made->batch(0, 1).value();
  const std::string before = content_of(batch);
  EXPECT_TRUE(batch.private_copy());
  const auto image = batch.keep(0);
  made.reset();
  EXPECT_EQ(content_of(batch), before);
  EXPECT_NE(batch.field("image").value().writable, nullptr);
}

TEST_F(MakerTest, CanBeCalledByManyThreads) {
  const Maker made =
      maker(photos("batch_size: 8, transforms: [random_crop: {size: 24}]"), {.threads = 2}).value();
  std::vector<std::string> expected;
  for (std::uint64_t k = 0; k < 4; ++k) expected.push_back(content_of(made.batch(0, k).value()));
  std::atomic<int> equal{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t k = 0; k < 4; ++k)
        equal += content_of(made.batch(0, k).value()) == expected[k] ? 1 : 0;
    });
  threads.clear();
  EXPECT_EQ(equal, 16);
}

/// The error's name and message.
template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "none" : result.error().to_string();
}

TEST_F(MakerTest, ReportsInvalidArgumentsAndConfigurations) {
  const std::string good = photos("batch_size: 8, delivery: shard, transforms: [center_crop: 24]");
  const Maker made = maker(good).value();
  EXPECT_EQ(error_of(made.rows(0, 25, 6)),
            "INVALID_ARGUMENT: 6 rows from position 25: stream `train` has 30 per epoch");
  EXPECT_EQ(error_of(made.rows(0, 30, 1)),
            "INVALID_ARGUMENT: 1 row from position 30: stream `train` has 30 per epoch");
  EXPECT_EQ(error_of(made.rows(0, 0, 0)),
            "INVALID_ARGUMENT: count is 0: expected a number of rows, at least 1");
  EXPECT_EQ(error_of(made.batch(0, 2, 2)),
            "INVALID_ARGUMENT: batch is 2: stream `train` has 2 per epoch with world_size 2");
  EXPECT_EQ(error_of(made.batch(0, 0, 2, 2)),
            "INVALID_ARGUMENT: rank is 2: expected 0 to 1, because world_size is 2");
  EXPECT_THAT(error_of(made.length(0)), HasSubstr("INVALID_ARGUMENT: world_size is 0"));
  EXPECT_EQ(error_of(maker(good, {.stream = "tarin"})),
            "NO_SUCH_STREAM: no stream `tarin`; expected one of: train; did you mean `train`?");
  EXPECT_EQ(error_of(maker(good, {.threads = 0})), "INVALID_ARGUMENT: threads is 0: expected 1 to 1024");
  EXPECT_THAT(error_of(maker(good, {.set = {"streams.train.batch_sise=2"}})), HasSubstr("CONFIG_INVALID: "));
  EXPECT_THAT(error_of(maker(photos("batch_sise: 8"))), HasSubstr("did you mean \"batch_size\"?"));
  EXPECT_THAT(error_of(Maker::open((folder_.path() / "none.yaml").string())), HasSubstr("none.yaml"));
  EXPECT_THAT(error_of(maker("sources: { photos: { type: image_folder, path: /nowhere } }\n"
                             "streams: { train: { source: photos, transforms: [center_crop: 24] } }\n")),
              HasSubstr("DATASET_INVALID: "));
  EXPECT_THAT(error_of(maker("sources: { fed: { type: feed, samples: 8, batch_size: 2, "
                             "fields: [{ name: x, dtype: uint8, shape: [2] }] } }\n"
                             "streams: { train: { source: fed } }\n")),
              HasSubstr("is fed from outside"));
}

TEST_F(MakerTest, FailsOnBadSamplesAsTheServerDoes) {
  for (std::uint32_t i = 0; i < 20; ++i)
    folder_.put((i % 2 ? "photos/cat/" : "photos/dog/") + std::to_string(100 + i) + ".jpg", "no image");
  const Maker made = maker(photos("batch_size: 8, transforms: [center_crop: 24]"), {.threads = 2}).value();
  EXPECT_THAT(error_of(made.rows(0, 0, kSamples)), HasSubstr("TOO_MANY_BAD_SAMPLES: stream `train`: "));
  const Maker strict = maker(photos("batch_size: 8, transforms: [center_crop: 24], on_error: fail")).value();
  EXPECT_THAT(error_of(strict.rows(0, 0, kSamples)), HasSubstr("BAD_SAMPLE: stream `train`: "));
}

TEST_F(MakerTest, MakesTheSameRowsOfSamplesThatAnotherMakerReads) {
  expect_equal_elsewhere(
      photos("batch_size: 8, transforms: [random_resized_crop: 24, random_horizontal_flip], seed: 5"));
  expect_equal_elsewhere(photos("batch_size: 8, shuffle: false"));  // images of one size, without a crop
  expect_equal_elsewhere(photos("batch_size: 8, transforms: [center_crop: 24], sampler: {balanced: {}}"));
  expect_equal_elsewhere(table("batch_size: 8, transforms: [random_crop: {size: 24}], fields: [image, age]"));
  expect_equal_elsewhere(photos("batch_size: 8, transforms: [center_crop: 24]"),
                         {.set = {"sources.photos.split={seed: 7, fractions: {train: 0.7, val: 0.3}}",
                                  "streams.train.part=val"}});
  expect_equal_elsewhere(
      "sources: { rows: { type: synthetic, count: 40, bytes: 24 } }\n"
      "streams: { train: { source: rows, batch_size: 8 } }\n");
}

TEST_F(MakerTest, MarksRowsOfBadSamplesThatAnotherMakerReads) {
  folder_.put("photos/cat/101.jpg", "no image");
  folder_.put("photos/dog/116.jpg", "");
  EXPECT_EQ(expect_equal_elsewhere(photos("batch_size: 8, transforms: [center_crop: 24]")), 4);
}

TEST_F(MakerTest, SaysWhyItCannotMakeRowsOfSamplesThatAnotherMakerReads) {
  const std::string config = photos("batch_size: 8, transforms: [center_crop: 24]");
  const Maker here = maker(config).value();
  const Maker there = maker(config, {.source = here.describe_source().value()}).value();
  const auto samples = here.samples(0, 0, 4).value();
  EXPECT_THAT(error_of(there.rows_of(samples, 0, 0, 5)),
              HasSubstr("INVALID_ARGUMENT: the samples of 5 rows"));
  EXPECT_THAT(error_of(there.rows(0, 0, 4)),
              HasSubstr("INVALID_ARGUMENT: stream `train`: this Maker reads no data"));
  EXPECT_THAT(error_of(there.batch(0, 0)), HasSubstr("reads no data"));
  EXPECT_THAT(error_of(there.samples(0, 0, 4)), HasSubstr("reads no data"));
  EXPECT_THAT(error_of(here.rows_of(samples, 0, 0, 4)),
              HasSubstr("INVALID_ARGUMENT: this Maker reads the source itself"));
  EXPECT_THAT(error_of(here.samples(0, 28, 4)), HasSubstr("4 rows from position 28"));
  EXPECT_THAT(error_of(maker(config, {.source = "{}"})), HasSubstr("INVALID_ARGUMENT: invalid description"));
  EXPECT_THAT(
      error_of(maker(table("batch_size: 8, transforms: [center_crop: 24]")).value().describe_source()),
      HasSubstr("the rows of field `caption` have different sizes; let that process read the source"));
  EXPECT_THAT(error_of(maker(photos("batch_size: 8, transforms: [center_crop: 24], output: {dtype: float32}, "
                                    "mix: {mixup: {alpha: 0.4}}"))
                           .value()
                           .describe_source()),
              HasSubstr("its rows are mixed with one another (`mix`)"));
}

TEST_F(MakerTest, EndsAnInterruptedCall) {
  const std::string config = photos("batch_size: 8, transforms: [center_crop: 24]");
  const Maker made =
      maker(config, {.set = {"sources.photos.io.delay=200ms"}, .interrupt = [] { return true; }}).value();
  EXPECT_EQ(error_of(made.rows(0, 0, kSamples)), "TIMEOUT: stream `train`: interrupted");
}

TEST_F(MakerTest, EndsAnInterruptedOpenOfASourceThatStalls) {
  WebServer web;
  web.put("/train.tar", {.content = std::string(1024, '\0')});
  web.fail_next({.cut = 0, .stall = true}, 100);
  const std::string config =
      "sources: { shards: { type: webdataset, path: \"" + web.url("/train.tar") +
      "\" } }\nstreams: { train: { source: shards, transforms: [center_crop: 24] } }\n";
  const auto interrupt = [&web] {
    web.wait_for_stall();
    return true;
  };
  EXPECT_EQ(error_of(maker(config, {.interrupt = interrupt})),
            "TIMEOUT: stream `train`: interrupted while its source was opened");
}

}  // namespace
}  // namespace headrace
