// Valid configurations: their parsed values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "server/config/config.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/npy.h"
#include "server/source/shards/webdataset.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
#include "tests/temp_folder.h"

namespace headrace::server::config {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

Config sound(const std::string& yaml, const Environment& environment = {}) {
  auto config = parse(yaml, "/etc/headrace/x.yaml", {}, environment);
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(Config{});
}

constexpr const char* kLeast =
    "sources: {f: {type: image_folder, path: /data}}\n"
    "streams: {t: {source: f, transforms: [center_crop: {size: 8}]}}\n";

TEST(ConfigValues, GiveDeviceClientsEnoughLeasesForCopiesToOverlap) {
  const std::string device = "    device: gpu\n";
  const std::string yaml =
      "sources: {f: {type: image_folder, path: /data}}\n"
      "streams:\n  t:\n    source: f\n    transforms: [center_crop: {size: 8}]\n";
  EXPECT_EQ(sound(yaml + device).streams.at("t").ring.max_leases, 5U);
  EXPECT_EQ(sound(yaml + device + "    ring: {max_leases: 2}\n").streams.at("t").ring.max_leases, 2U);
}

TEST(ConfigValues, LeaveOutWhatHasADefault) {
  const auto config = sound(kLeast, {"XDG_RUNTIME_DIR=/run/user/7"});
  EXPECT_EQ(config.server.directory, "/run/user/7/headrace");
  EXPECT_GE(config.server.threads, 1U);
  EXPECT_EQ(config.server.numa, Numa::kAuto);
  ASSERT_TRUE(config.server.metrics);
  EXPECT_EQ(config.server.metrics->address, "127.0.0.1");
  EXPECT_EQ(config.server.metrics->port, 9464);
  EXPECT_EQ(config.server.evict_after, 30s);
  EXPECT_EQ(config.server.group_grace, 60s);
  EXPECT_EQ(config.server.drain_timeout, 3s);
  EXPECT_EQ(config.server.log_level, log::Level::kInfo);
  const auto& t = config.streams.at("t");
  EXPECT_TRUE(t.shuffle);
  EXPECT_EQ(t.seed, 0U);
  EXPECT_EQ(t.batch_size, 64U);
  EXPECT_EQ(t.last, LastBatch::kShort);
  EXPECT_EQ(t.delivery, Delivery::kBroadcast);
  EXPECT_EQ(t.on_error, OnError::kReplace);
  EXPECT_EQ(t.max_bad, 0.1);
  EXPECT_EQ(t.ring.prefetch, 4U);
  EXPECT_EQ(t.ring.max_leases, 3U);
  EXPECT_EQ(t.ring.max_clients, 4U);
  EXPECT_EQ(t.ring.data_access, Access::kReadOnly);
  EXPECT_EQ(t.sharing.max_lag, 4U);
  EXPECT_EQ(t.sharing.on_lag, OnLag::kDetach);
  EXPECT_EQ(t.sharing.wait_for, 1U);
  EXPECT_EQ(t.sharing.wait_timeout, 60s);
  EXPECT_EQ(t.plan.chain.output.dtype, DType::kUInt8);
  EXPECT_EQ(t.plan.chain.output.layout, transform::PixelLayout::kNchw);
  EXPECT_FALSE(t.plan.chain.warnings_are_bad);
}

TEST(ConfigValues, ReadEveryKey) {
  const auto config = sound(R"(
server:
  directory: run
  threads: 3
  numa: off
  metrics: off
  evict_after: 1500ms
  group_grace: 2m
  drain_timeout: 1.5s
  log_level: debug
sources:
  photos: {type: image_folder, path: ../photos, split: {seed: 7, fractions: {train: 0.9, val: 0.1}}}
  lists: {type: image_folder, path: /p, split: {lists: {a: a.txt, b: /b.txt}}}
  classes: {type: image_folder, path: /p, split: {classes: {a: [cat, "7"], b: [emu]}}}
  nothing: {type: synthetic, count: 100, bytes: 0x40}
  shards: {type: webdataset, path: ["a-{0..9}.tar", /b], image: [JPG, seg.png], label: json.id, classes: [x], index_cache: off}
  arrays: {type: npy, fields: {image: i.npy, label: /l.npy}, images: [image], classes: [x, y]}
  npz: {type: npy, path: a.npz, fields: {image: x}}
streams:
  train:
    source: photos
    part: train
    shuffle: false
    seed: 9223372036854775807
    batch_size: 32
    last: pad
    delivery: shard
    transforms:
      - resize: {size: 256, max_size: 400, interpolation: bicubic}
      - random_crop: {size: [100, 120], padding: [1, 2], pad_if_needed: true, fill: [9, 8, 7], padding_mode: reflect}
      - random_resized_crop: {size: 224, scale: [0.5, 1], ratio: [1, 2], interpolation: nearest}
      - random_horizontal_flip
      - random_vertical_flip: {p: 0.25}
      - normalize: {mean: [0, 0.5, 1], std: [1, 2, 3]}
    output: {dtype: bfloat16, layout: NHWC}
    on_error: fail
    max_bad: 0
    warnings: bad
    max_pixels: 1000
    resize_passes: horizontal_first
    ring: {prefetch: 6, max_leases: 2, max_clients: 9, data_access: read_write}
    sharing: {wait_for: 3, wait_timeout: 1h}
  other: {source: nothing, sharing: {max_lag: 2, on_lag: wait}}
)");
  EXPECT_EQ(config.server.directory, "/etc/headrace/run");
  EXPECT_EQ(config.server.threads, 3U);
  EXPECT_EQ(config.server.numa, Numa::kOff);
  EXPECT_FALSE(config.server.metrics);
  EXPECT_EQ(config.server.evict_after, 1500ms);
  EXPECT_EQ(config.server.group_grace, 120s);
  EXPECT_EQ(config.server.drain_timeout, 1500ms);
  EXPECT_EQ(config.server.log_level, log::Level::kDebug);

  const auto& photos = config.sources.at("photos");
  EXPECT_EQ(photos.type->name, "image_folder");
  const auto& fractions = std::get<source::SplitFractions>(*photos.split);
  EXPECT_EQ(fractions.seed, 7U);
  EXPECT_EQ(fractions.parts.at("val"), 0.1);
  EXPECT_THAT(source::part_names(*photos.split), ElementsAre("train", "val"));
  const auto& lists = std::get<source::SplitLists>(*config.sources.at("lists").split);
  EXPECT_EQ(lists.parts.at("a"), "/etc/headrace/a.txt");
  EXPECT_EQ(lists.parts.at("b"), "/b.txt");
  const auto& classes = std::get<source::SplitClasses>(*config.sources.at("classes").split);
  EXPECT_THAT(classes.parts.at("a"), ElementsAre("cat", "7"));

  const auto& shards = *config.sources.at("shards").as<source::WebDatasetOptions>();
  EXPECT_THAT(shards.paths, ElementsAre("/etc/headrace/a-{0..9}.tar", "/b"));
  EXPECT_THAT(shards.rule.images, ElementsAre("jpg", "seg.png"));
  EXPECT_EQ(shards.rule.label, "json.id");
  EXPECT_THAT(shards.rule.classes, ElementsAre("x"));
  EXPECT_FALSE(shards.cache);
  const auto& arrays = *config.sources.at("arrays").as<source::NpyOptions>();
  EXPECT_EQ(arrays.files.at("image"), "/etc/headrace/i.npy");
  EXPECT_EQ(arrays.files.at("label"), "/l.npy");
  EXPECT_TRUE(arrays.npz.empty());
  EXPECT_THAT(arrays.images.value(), ElementsAre("image"));
  EXPECT_THAT(arrays.classes, ElementsAre("x", "y"));
  const auto& npz = *config.sources.at("npz").as<source::NpyOptions>();
  EXPECT_EQ(npz.npz, "/etc/headrace/a.npz");
  EXPECT_EQ(npz.arrays.at("image"), "x");
  EXPECT_FALSE(npz.images);

  const auto& t = config.streams.at("train");
  EXPECT_EQ(t.source, "photos");
  EXPECT_EQ(t.part, "train");
  EXPECT_FALSE(t.shuffle);
  EXPECT_EQ(t.seed, ~std::uint64_t{0} >> 1);
  EXPECT_EQ(t.batch_size, 32U);
  EXPECT_EQ(t.last, LastBatch::kPad);
  EXPECT_EQ(t.delivery, Delivery::kShard);
  EXPECT_EQ(t.on_error, OnError::kFail);
  EXPECT_EQ(t.max_bad, 0);
  EXPECT_EQ(t.ring.prefetch, 6U);
  EXPECT_EQ(t.ring.max_leases, 2U);
  EXPECT_EQ(t.ring.max_clients, 9U);
  EXPECT_EQ(t.ring.data_access, Access::kReadWrite);
  EXPECT_EQ(t.sharing.max_lag, 6U) << "its default is prefetch";
  EXPECT_EQ(t.sharing.wait_for, 3U);
  EXPECT_EQ(t.sharing.wait_timeout, 1h);
  EXPECT_EQ(config.streams.at("other").sharing.max_lag, 2U);
  EXPECT_EQ(config.streams.at("other").sharing.on_lag, OnLag::kWait);

  ASSERT_EQ(t.plan.chain.transforms.size(), 6U);
  const auto argument = [&](std::size_t i) { return t.plan.chain.transforms[i]->arguments(); };
  using nlohmann::json;
  EXPECT_EQ(argument(0), json({{"size", 256}, {"max_size", 400}, {"interpolation", "bicubic"}}));
  EXPECT_EQ(argument(1), json({{"size", {100, 120}},
                               {"padding", {1, 2, 1, 2}},
                               {"pad_if_needed", true},
                               {"fill", {9, 8, 7}},
                               {"padding_mode", "reflect"}}));
  EXPECT_EQ(argument(2), json({{"size", {224, 224}},
                               {"scale", {0.5, 1.0}},
                               {"ratio", {1.0, 2.0}},
                               {"interpolation", "nearest"}}));
  EXPECT_EQ(argument(3), json({{"p", 0.5}}));
  EXPECT_EQ(argument(4), json({{"p", 0.25}}));
  EXPECT_THAT(argument(5)["std"], ElementsAre(1, 2, 3));
  EXPECT_EQ(t.plan.chain.output.dtype, DType::kBFloat16);
  EXPECT_EQ(t.plan.chain.output.layout, transform::PixelLayout::kNhwc);
  EXPECT_EQ(t.plan.chain.max_pixels, 1000U);
  EXPECT_EQ(t.plan.chain.passes, transform::ResizePasses::kHorizontalFirst);
  EXPECT_TRUE(t.plan.chain.warnings_are_bad);
}

TEST(ConfigValues, TakeAnchorsAndMergeKeys) {
  const auto config = sound(
      "sources: {f: {type: image_folder, path: /data}}\n"
      "streams:\n"
      "  a: &a {source: f, batch_size: 8, seed: 1, transforms: [center_crop: {size: 8}]}\n"
      "  b: {<<: *a, batch_size: 9}\n");
  EXPECT_EQ(config.streams.at("b").batch_size, 9U);
  EXPECT_EQ(config.streams.at("b").seed, 1U);
}

TEST(ConfigValues, ReadTransformsWrittenInEveryWayAlike) {
  const auto plan = [](const std::string& transforms) {
    return canonical(
        sound("sources: {f: {type: image_folder, path: /data}}\nstreams: {t: {source: f, transforms: [" +
              transforms + "]}}\n")
            .streams.at("t"));
  };
  EXPECT_EQ(plan("center_crop: {size: 8}, random_horizontal_flip"),
            plan("center_crop: {size: [8, 8]}, random_horizontal_flip: {p: 0.5}"));
  EXPECT_EQ(plan("center_crop: {size: 8}, random_horizontal_flip:"),
            plan("center_crop: {size: 8}, {random_horizontal_flip: {}}"));
  EXPECT_EQ(plan("random_crop: {size: 8, padding: 4}"),
            plan("random_crop: {size: 8, padding: [4, 4, 4, 4], fill: 0}"));
  EXPECT_NE(plan("center_crop: {size: 8}"), plan("center_crop: {size: 9}"));
}

TEST(ConfigValues, EnterTheCanonicalPlanIfAndOnlyIfTheyChangeTheStream) {
  const auto base = sound(kLeast).streams.at("t");
  const auto same = [&](auto change) {
    auto other = base;
    change(other);
    return canonical(other) == canonical(base);
  };
  EXPECT_TRUE(same([](StreamConfig& s) { s.batch_size = 7; }));
  EXPECT_TRUE(same([](StreamConfig& s) { s.ring.prefetch = 7; }));
  EXPECT_TRUE(same([](StreamConfig& s) { s.last = LastBatch::kDrop; }));
  EXPECT_TRUE(same([](StreamConfig& s) { s.delivery = Delivery::kShard; }));
  EXPECT_FALSE(same([](StreamConfig& s) { s.seed = 7; }));
  EXPECT_FALSE(same([](StreamConfig& s) { s.shuffle = false; }));
  EXPECT_FALSE(same([](StreamConfig& s) { s.part = "val"; }));
  EXPECT_FALSE(same([](StreamConfig& s) { s.plan.chain.output.dtype = DType::kFloat32; }));
  EXPECT_FALSE(same([](StreamConfig& s) { s.plan.chain.output.layout = transform::PixelLayout::kNhwc; }));
  EXPECT_FALSE(same([](StreamConfig& s) {
    s.plan.chain.transforms.emplace_back(transform::make_op("random_horizontal_flip"));
  }));
  EXPECT_FALSE(same([](StreamConfig& s) { s.plan.chain.warnings_are_bad = true; }));
  EXPECT_FALSE(
      same([](StreamConfig& s) { s.plan.chain.passes = transform::ResizePasses::kHorizontalFirst; }));
}

TEST(ConfigValues, ReadDurations) {
  EXPECT_EQ(parse_duration("500ms"), 500ms);
  EXPECT_EQ(parse_duration("30s"), 30s);
  EXPECT_EQ(parse_duration("0.25s"), 250ms);
  EXPECT_EQ(parse_duration("2m"), 2min);
  EXPECT_EQ(parse_duration("1h"), 1h);
  EXPECT_EQ(parse_duration("8760h"), 8760h);
  for (const char* wrong : {"", "30", "s", "3 s", "-3s", "1.2.3s", "3d", "3sec", "8760.1h", "999999999h"})
    EXPECT_FALSE(parse_duration(wrong)) << wrong;
}

TEST(ConfigValues, ReadSizes) {
  EXPECT_EQ(parse_size("512MB"), 512'000'000U);
  EXPECT_EQ(parse_size("8GiB"), std::uint64_t{8} << 30);
  EXPECT_EQ(parse_size("1.5 GiB"), std::uint64_t{3} << 29);
  EXPECT_EQ(parse_size("2TB"), 2'000'000'000'000U);
  EXPECT_EQ(parse_size("4kB"), 4000U);
  EXPECT_EQ(parse_size("4KiB"), 4096U);
  EXPECT_EQ(parse_size("64B"), 64U);
  EXPECT_EQ(parse_size("0B"), 0U);
  for (const char* wrong : {"", "30", "MB", "3  GB", "-3GB", "1.2.3MB", "3iB", "3PB", "3Gi", "3gb", "3 G B",
                            "3MMB", "999999999TB"})
    EXPECT_FALSE(parse_size(wrong)) << wrong;
}

TEST(ConfigValues, ReadCachesOfASource) {
  const auto config = sound(
      "sources: {f: {type: image_folder, path: /data, cache: {encoded: 2 GiB, decoded: 100MB}},\n"
      "          i: {type: image_folder, path: /data, cache: {encoded: 1MB, tile: false}},\n"
      "          g: {type: idx, images: a, labels: b, cache: {decoded: 1MB}},\n"
      "          h: {type: image_folder, path: /data}}\n"
      "streams: {t: {source: f, transforms: [center_crop: {size: 8}]}}\n");
  EXPECT_EQ(config.sources.at("f").cache.encoded, std::uint64_t{2} << 30);
  EXPECT_EQ(config.sources.at("f").cache.decoded, 100'000'000U);
  EXPECT_EQ(config.sources.at("g").cache.encoded, 0U);
  EXPECT_EQ(config.sources.at("g").cache.decoded, 1'000'000U);
  EXPECT_EQ(config.sources.at("h").cache.decoded, 0U);
  EXPECT_TRUE(config.sources.at("f").cache.tile);
  EXPECT_FALSE(config.sources.at("i").cache.tile);
}

TEST(ConfigValues, ArePathsAsTheyAreWrittenWithoutAShell) {
  const TempFolder folder;
  const std::string name = (folder.path() / "x.yaml").string();
  const auto said = [&](const std::string& path) {
    const auto config =
        parse("sources: {f: {type: webdataset, path: " + path +
                  ", label: none}}\nstreams: {t: {source: f, transforms: [center_crop: {size: 1}]}}\n",
              name);
    return config ? std::string() : config.error().message;
  };
  for (const char* path :
       {"~/data", "$HOME/data", "'${HOME}/data'", "/mnt/$USER/data", "$DATA", "['a.tar', '~/b.tar']"})
    EXPECT_THAT(said(path), HasSubstr("`~` and `$NAME` are not expanded; write the absolute path")) << path;
  EXPECT_THAT(said("~/data"), HasSubstr(name + ":1:39: sources.f.path: \"~/data\": "));
  for (const char* path : {"/data~/x", "/data/5$/x", "s3://bucket/$x/y.tar"})
    EXPECT_EQ(said(path), "") << path;
  folder.put("~/there", "");
  folder.put("a/$b/there", "");
  EXPECT_EQ(said("'~/{0..9}.tar'"), "");
  EXPECT_EQ(said("a/$b/c.tar"), "");
  const auto column = parse(
      "sources: {f: {type: manifest, path: a.csv, fields: {image: {column: $image}}}}\n"
      "streams: {t: {source: f, transforms: [center_crop: {size: 1}]}}\n",
      name);
  EXPECT_TRUE(column) << column.error().message;
}

TEST(ConfigValues, PutTheSocketsWhereTheUserMayWrite) {
  EXPECT_EQ(default_directory({"A=b", "XDG_RUNTIME_DIR=/run/user/5"}), "/run/user/5/headrace");
  EXPECT_THAT(default_directory({"XDG_RUNTIME_DIR="}).string(), testing::StartsWith("/tmp/headrace-"));
  EXPECT_THAT(default_directory({"XDG_RUNTIME_DIR=run"}).string(), testing::StartsWith("/tmp/headrace-"));
  EXPECT_THAT(default_directory({}).string(), testing::StartsWith("/tmp/headrace-"));
}

TEST(ConfigExamples, AreAllSound) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(HEADRACE_CONFIGS)) {
    if (entry.path().extension() != ".yaml") continue;
    const auto config = load(entry.path(), {}, {});
    EXPECT_TRUE(config) << config.error().message;
    ++seen;
  }
  EXPECT_GE(seen, 6);
}

TEST(ConfigExamples, TheSchemaThatShipsIsThatOfTheKeys) {
  std::ifstream file(fs::path(HEADRACE_CONFIGS) / "headrace.schema.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(text == schema_text()) << "write it anew: headrace schema > configs/headrace.schema.json";
}

TEST(ConfigExamples, DemoTakesItsFolderFromTheEnvironment) {
  const auto config = load(fs::path(HEADRACE_CONFIGS) / "demo.yaml", {},
                           {"HEADRACE_SOURCES__PHOTOS__PATH=/my/photos", "HOME=/x"});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->sources.at("photos").as<source::ImageFolderOptions>()->path, "/my/photos");
  EXPECT_EQ(config->streams.at("train").sharing.wait_for, 2U);
}

TEST(ConfigValues, NormalizeMakesFloatsUnlessAnotherTypeIsGiven) {
  const auto dtype = [](const std::string& output) {
    const auto config = parse(
        "sources: {photos: {type: image_folder, path: /data}}\n"
        "streams:\n"
        "  t:\n"
        "    source: photos\n"
        "    transforms: [center_crop: {size: 8}, normalize: {mean: [0, 0, 0], std: [1, 1, 1]}]\n" +
            output,
        "x.yaml");
    EXPECT_TRUE(config) << config.error().message;
    return config ? config->streams.at("t").plan.chain.output.dtype : DType::kUInt8;
  };
  EXPECT_EQ(dtype(""), DType::kFloat32);
  EXPECT_EQ(dtype("    output: {layout: NHWC}\n"), DType::kFloat32);
  EXPECT_EQ(dtype("    output: {dtype: float16}\n"), DType::kFloat16);
}

}  // namespace
}  // namespace headrace::server::config
