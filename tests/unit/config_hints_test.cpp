// Errors that suggest what was meant, and report all mistakes at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config.h"

namespace headrace::server::config {
namespace {

/// All problems, one a line.
std::string said(const std::string& text) {
  const auto config = parse(text, "x.yaml");
  return config ? "" : config.error().message;
}

/// A configuration with a stream over a folder; the stream's first key is in line 5.
std::string of_stream(const std::string& body) {
  return said("sources: {f: {type: image_folder, path: /data}}\nstreams:\n  t:\n    source: f\n" + body);
}

TEST(ConfigHints, NameWhatCompilingFindsBesideWhatTheSchemaFinds) {
  EXPECT_EQ(
      of_stream("    batch_size: 0\n    transforms:\n      - random_resized_crop: {size: 8}\n"
                "      - normalize: {mean: [0.5, 0.5], std: [1, 1]}\n    output: {dtype: float32}\n"
                "    ring: {prefetch: 0}\n    sharing: {max_lag: 9}\n"),
      "x.yaml:5:17: streams.t.batch_size: 0 is not a whole number from 1 to 1000000\n"
      "x.yaml:8:9: streams.t.transforms[1]: normalize: expected 3 numbers (red, green, blue) in each of mean "
      "and std, one per channel, found 2\n"
      "x.yaml:10:22: streams.t.ring.prefetch: 0 is not a whole number from 1 to 1024");
}

TEST(ConfigHints, TakeTransformsUpToTheFirstWrongOne) {
  EXPECT_EQ(
      of_stream("    transforms:\n      - center_crop: {size: 8}\n      - random_crop: {size: 9}\n"
                "      - center_crop: {siz: 3}\n      - normalize: {mean: [0], std: [1, 1, 1]}\n"),
      "x.yaml:7:9: streams.t.transforms[1]: random_crop: size [9, 9] is larger than the [8, 8] image with "
      "its "
      "padding: set `pad_if_needed: true`, or put a resize before it\n"
      "x.yaml:8:9: streams.t.transforms[2].center_crop: key \"size\" is missing\n"
      "x.yaml:8:23: streams.t.transforms[2].center_crop.siz: unknown key \"siz\"; did you mean \"size\"?");
}

TEST(ConfigHints, DoNotFollowFromWhatIsWrongElsewhere) {
  // The output's dtype, the chain's last transform, and whether a path is a URL are unknown.
  EXPECT_EQ(
      of_stream("    transforms:\n      - center_crop: {size: 8}\n"
                "      - normalize: {mean: [0, 0, 0], std: [1, 1, 1]}\n    output: {dtype: float33}\n"),
      "x.yaml:8:21: streams.t.output.dtype: \"float33\" is not one of uint8, float16, bfloat16, float32; did "
      "you mean \"float32\"?");
  EXPECT_EQ(of_stream("    transform: [center_crop: {size: 8}]\n"),
            "x.yaml:5:5: streams.t.transform: unknown key \"transform\"; did you mean \"transforms\"?");
  EXPECT_EQ(of_stream("    transforms: [centre_crop: {size: 8}]\n"),
            "x.yaml:5:18: streams.t.transforms[0].centre_crop: unknown key \"centre_crop\"; did you mean "
            "\"center_crop\"?");
  EXPECT_EQ(
      said(
          "sources: {f: {type: webdataset, path: 7, s3: {region: eu}}}\nstreams: {t: {source: f, transforms: "
          "[center_crop: {size: 8}]}}\n"),
      "x.yaml:1:39: sources.f.path: 7 is not a path, or a list of paths");
}

TEST(ConfigHints, SayWhereAKeyBelongs) {
  const std::string crop = "    transforms: [center_crop: {size: 8}]\n";
  EXPECT_EQ(of_stream(crop + "    dtype: float32\n"),
            "x.yaml:6:5: streams.t.dtype: unknown key \"dtype\"; it belongs under `output`");
  EXPECT_EQ(of_stream(crop + "    prefetch: 3\n"),
            "x.yaml:6:5: streams.t.prefetch: unknown key \"prefetch\"; it belongs under `ring`");
  EXPECT_EQ(
      of_stream(crop + "    alpha: 1\n"),
      "x.yaml:6:5: streams.t.alpha: unknown key \"alpha\"; it belongs under `mix.cutmix` or `mix.mixup`");
  EXPECT_EQ(of_stream(crop + "    mean: [0.5]\n"),
            "x.yaml:6:5: streams.t.mean: unknown key \"mean\"; it belongs under `transforms[].normalize`");
  EXPECT_EQ(of_stream(crop + "    numa: off\n"),
            "x.yaml:6:5: streams.t.numa: unknown key \"numa\"; it belongs under `server`");
  EXPECT_EQ(of_stream(crop + "    output: {last: drop}\n"),
            "x.yaml:6:14: streams.t.output.last: unknown key \"last\"; it belongs under "
            "`streams.NAME`");
}

TEST(ConfigHints, SayThatTheTrainerChoosesItsGpu) {
  EXPECT_EQ(of_stream("    transforms: [center_crop: {size: 8}]\n    device: cuda:0\n"),
            "x.yaml:6:13: streams.t.device: \"cuda:0\" is not one of cpu, gpu; the trainer chooses its GPU: "
            "Loader(device=\"cuda:0\")");
  EXPECT_EQ(of_stream("    transforms: [center_crop: {size: 8}]\n    residence: cpu\n"),
            "x.yaml:6:16: streams.t.residence: \"cpu\" is not gpu; leave it out, and batches come from the "
            "server's workers; the trainer chooses its GPU: Loader(device=\"cuda:0\")");
}

TEST(ConfigHints, WriteAValueAsTheMapOrListThatWasMeant) {
  const std::string crop = "    transforms: [center_crop: {size: 8}]\n";
  EXPECT_EQ(of_stream(crop + "    output: float32\n"),
            "x.yaml:6:13: streams.t.output: \"float32\" is not a map of dtype, layout; did you mean "
            "\"{dtype: float32}\"?");
  EXPECT_EQ(of_stream(crop + "    fields: image\n"),
            "x.yaml:6:13: streams.t.fields: \"image\" is not a list of fields' names; did you mean "
            "\"[image]\"?");
  EXPECT_EQ(said("sources: {f: {type: image_folder, path: /data, cache: 8GB}}\n"
                 "streams: {t: {source: f, transforms: [center_crop: {size: 8}]}}\n"),
            "x.yaml:1:55: sources.f.cache: \"8GB\" is not a map with at least one of decoded, encoded, tile")
      << "two keys accept the value";
  EXPECT_EQ(said("sources: {f: {type: image_folder, path: /data, cache: true}}\n"
                 "streams: {t: {source: f, transforms: [center_crop: {size: 8}]}}\n"),
            "x.yaml:1:55: sources.f.cache: true is not a map with at least one of decoded, encoded, tile")
      << "no key of the map is meant";
  EXPECT_EQ(of_stream(crop + "    mix: 0.2\n"),
            "x.yaml:6:10: streams.t.mix: 0.2 is not a map with the key mixup or cutmix")
      << "a map with p alone is refused";
}

TEST(ConfigHints, PreferAMissingKeyToAnotherMap) {
  EXPECT_EQ(said("source: {f: {type: image_folder, path: /data}}\nstreams: {t: {source: f}}\n"),
            "x.yaml:1:1: source: unknown key \"source\"; did you mean \"sources\"?\n"
            "x.yaml:1:1: key \"sources\" is missing\n"
            "x.yaml:2:23: streams.t.source: there is no source \"f\", nor any other");
}

TEST(ConfigHints, NameTheTypesOfSourceThatHaveAKey) {
  const auto of_source = [](const std::string& keys) {
    return said("sources: {s: {type: " + keys +
                "}}\nstreams: {t: {source: s, transforms: [center_crop: {size: 8}]}}\n");
  };
  EXPECT_THAT(
      of_source("image_folder, root: /data"),
      testing::HasSubstr("sources.s.root: unknown key \"root\"; only sources of type manifest have it; "
                         "did you mean \"path\"?"));
  for (const char* word : {"data_dir", "dir", "folder"})
    EXPECT_THAT(of_source("image_folder, " + std::string(word) + ": /data"),
                testing::HasSubstr(std::string("unknown key \"") + word + "\"; did you mean \"path\"?"));
  EXPECT_EQ(of_source("image_folder, path: /data, root: /data"),
            "x.yaml:1:48: sources.s.root: unknown key \"root\"; only sources of type manifest have it");
  EXPECT_THAT(of_source("repeat, source: s, times: 2"),
              testing::HasSubstr("sources.s.source: unknown key \"source\"; did you mean \"of\"?"));
  EXPECT_EQ(
      of_source("cifar, path: /data, label: fine"),
      "x.yaml:1:41: sources.s.label: unknown key \"label\"; only sources of type webdataset or zip have it; "
      "did you mean \"labels\"?");
}

TEST(ConfigHints, KnowTheNamesOfADataLoader) {
  EXPECT_EQ(
      of_stream("    transforms: [center_crop: {size: 8}]\n    drop_last: true\n    num_workers: 4\n"),
      "x.yaml:6:5: streams.t.drop_last: unknown key \"drop_last\"; write `last: drop` if it is true, else "
      "leave it out\n"
      "x.yaml:7:5: streams.t.num_workers: unknown key \"num_workers\"; set `server.threads`: one pool "
      "works for all streams");
  EXPECT_EQ(
      of_stream("    transforms: [center_crop: {size: 8}, to_tensor: {}]\n"),
      "x.yaml:5:42: streams.t.transforms[1].to_tensor: unknown key \"to_tensor\"; leave it out: `output: "
      "{dtype: float32}` gives floats from 0 to 1");
  EXPECT_THAT(of_stream("    dataset: s\n"),
              testing::HasSubstr("key \"dataset\"; write `source`, with the name of a source"));
  EXPECT_THAT(of_stream("    sampler: random\n"), testing::HasSubstr("; write shuffled"));
  EXPECT_THAT(of_stream("    transforms: [center_crop: {size: 8}, ToTensor]\n"),
              testing::EndsWith("leave it out: `output: {dtype: float32}` gives floats from 0 to 1"));
}

TEST(ConfigHints, SayThatKeysAreNotIndented) {
  EXPECT_EQ(
      of_stream("    transforms:\n      - random_resized_crop:\n        size: 8\n      - normalize:\n"
                "        mean: [0.5, 0.5, 0.5]\n        std: [1, 1, 1]\n    output:\n    dtype: float32\n"),
      "x.yaml:7:9: streams.t.transforms[0].size: `size` must be indented further than `random_resized_crop`: "
      "it is a key of it\n"
      "x.yaml:9:9: streams.t.transforms[1].mean: `mean`, `std` must be indented further than `normalize`: "
      "they "
      "are keys of it\n"
      "x.yaml:12:5: streams.t.dtype: `dtype` must be indented further than `output`: it is a key of it");
  EXPECT_EQ(
      said("sources: {f: {type: image_folder, path: /data}}\nstreams:\n  t:\n  source: f\n  batch_size: 3\n"),
      "x.yaml:4:3: streams.source: `source`, `batch_size` must be indented further than `t`: they are keys "
      "of "
      "it");
}

TEST(ConfigHints, SayHowALineThatIsNoYamlIsIndented) {
  const auto line = [](const std::string& text) {
    return said("sources:\n  f:\n    type: image_folder\n" + text);
  };
  EXPECT_EQ(
      line("     path: /data\n"),
      "x.yaml:4:10: YAML: illegal map value; indentation: expected at most 4 spaces, as in line 3, found 5");
  EXPECT_EQ(line("   path: /data\n"),
            "x.yaml:4:4: YAML: end of map not found; indentation: expected 0 or 2 or 4 spaces, found 3");
  EXPECT_EQ(
      line("    path: [\n  3: 4\n"),
      "x.yaml:6:1: YAML: end of sequence flow not found; a `[` above is not closed, or a comma is missing")
      << "not the indentation";
}

}  // namespace
}  // namespace headrace::server::config
