// Wrong configurations of every kind: each names file, line, column, value and the nearest right name.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "server/config/config.h"

namespace headrace::server::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Wrong {
  const char* name;
  std::string yaml;
  std::string expected;  // all problems, one per line
};

// A valid stream; the cases below count its lines from `first`.
const std::string kNothing = "sources: {s: {type: synthetic, count: 10, bytes: 4}}\n";  // 1 line
const std::string kFolder = "sources: {f: {type: image_folder, path: /data}}\n";        // 1 line
const std::string kCrop = "- random_resized_crop: {size: 8}";

std::string stream(const std::string& body) {
  return kFolder + "streams:\n  t:\n    source: f\n" + body;
}  // body: line 5
std::string images(const std::string& body) {
  return stream("    transforms: [random_resized_crop: {size: 8}]\n" + body);
}
std::string with_transforms(const std::string& items) {
  return stream("    transforms:\n" + items);
}  // items: line 6

const std::string kTypes =
    "image_folder, idx, cifar, paired_folders, manifest, lmdb, webdataset, npy, feed, synthetic, concat, "
    "subset, repeat, zip, relabel";

std::vector<Wrong> cases() {
  const std::string ok = "streams: {t: {source: s}}\n";
  return {
      // YAML
      {"UnclosedBracket", "a: [1,2\nb: 3\n",
       "x.yaml:2:2: YAML: end of sequence flow not found; a `[` above is not closed, or a comma is missing"},
      {"NoSpaceAfterAColon", "streams:\n  a:\n    batch_size:16\n    source: x\n",
       "x.yaml:4:11: YAML: illegal map value; line 3 needs a space after `batch_size:`"},
      {"Tab", "\ta: 1\n", "x.yaml:1:3: YAML: illegal map value; a tab: YAML indents with spaces"},
      {"UnknownAlias", "a: *nope\n", "x.yaml:1:4: YAML: the referenced anchor is not defined"},
      {"Empty", "", "x.yaml:1:1: expected a map with the keys `sources` and `streams`, found nothing"},
      {"OnlyAComment", "# a\n",
       "x.yaml:1:1: expected a map with the keys `sources` and `streams`, found nothing"},
      {"List", "- 1\n", "x.yaml:1:1: expected a map with the keys `sources` and `streams`, found a list"},
      {"Text", "train\n", "x.yaml:1:1: expected a map with the keys `sources` and `streams`, found text"},
      {"TwoDocuments", kNothing + ok + "---\na: 1\n",
       "x.yaml:4:1: a second document; a configuration is one"},
      {"RepeatedKey", kNothing + "streams:\n  t: {source: s}\n  t: {source: s}\n",
       "x.yaml:4:3: streams.t: duplicate key, first at 3:3"},
      {"KeyThatIsAList", kNothing + ok + "[a]: 1\n", "x.yaml:3:1: a key must be plain text"},
      {"Infinity", kNothing + "streams: {t: {source: s, max_bad: .inf}}\n",
       "x.yaml:2:35: streams.t.max_bad: .inf is not a finite number"},
      {"MergeOfAScalar", kNothing + ok + "server: {<<: 3}\n",
       "x.yaml:3:10: server: << merges a map or a list of maps"},
      // keys
      {"NoSources", ok,
       "x.yaml:1:1: key \"sources\" is missing\n"
       "x.yaml:1:23: streams.t.source: there is no source \"s\", nor any other"},
      {"NoStreams", kNothing, "x.yaml:1:1: key \"streams\" is missing"},
      {"EmptyStreams", kNothing + "streams: {}\n",
       "x.yaml:2:10: streams: an empty map is not a map with 1 to 64 entries"},
      {"NullStreams", kNothing + "streams:\n",
       "x.yaml:2:1: streams: nothing is not a map with 1 to 64 entries"},
      {"UnknownTopKey", kNothing + ok + "sever: {threads: 3}\n",
       "x.yaml:3:1: sever: unknown key \"sever\"; did you mean \"server\"?"},
      {"KeyThatBelongsFurtherDown", kNothing + "streams: {t: {source: s, wait_for: 2}}\n",
       "x.yaml:2:26: streams.t.wait_for: unknown key \"wait_for\"; it belongs under `sharing`"},
      {"UnknownKeyFarFromAll", kNothing + ok + "server: {zzzzzzzzz: 3}\n",
       "x.yaml:3:10: server.zzzzzzzzz: unknown key \"zzzzzzzzz\"; known here: allow, directory, "
       "drain_timeout, evict_after, group_grace, log_format, log_level, metrics, numa, seccomp, threads"},
      {"DashForUnderscore", images("    batch-size: 4\n"),
       "x.yaml:6:5: streams.t.batch-size: unknown key \"batch-size\"; did you mean \"batch_size\"?"},
      {"StreamWithoutSource", kNothing + "streams:\n  t: {seed: 1}\n",
       "x.yaml:3:3: streams.t: key \"source\" is missing"},
      {"BadName", kNothing + "streams:\n  9t: {source: s}\n",
       "x.yaml:3:3: streams.9t: \"9t\" is not a name of 1 to 47 letters, digits, _ and -, a letter first"},
      // server
      {"ThreadsWord", kNothing + ok + "server: {threads: atuo}\n",
       "x.yaml:3:19: server.threads: \"atuo\" is not auto, or a whole number from 1 to 4096; did you mean "
       "\"auto\"?"},
      {"ThreadsZero", kNothing + ok + "server: {threads: 0}\n",
       "x.yaml:3:19: server.threads: 0 is not auto, or a whole number from 1 to 4096"},
      {"ThreadsQuoted", kNothing + ok + "server: {threads: '4'}\n",
       "x.yaml:3:19: server.threads: \"4\" is not auto, or a whole number from 1 to 4096"},
      {"Port", kNothing + ok + "server:\n  metrics: {port: 65536}\n",
       "x.yaml:4:19: server.metrics.port: 65536 is not a whole number from 0 to 65535"},
      {"MetricsWord", kNothing + ok + "server: {metrics: on}\n",
       "x.yaml:3:19: server.metrics: \"on\" is not off, or a map of address, images, port"},
      {"DurationLongerThanAYear", kNothing + ok + "server: {group_grace: 8761h}\n",
       "x.yaml:3:23: server.group_grace: \"8761h\" is longer than a year, which is 8760h"},
      {"WaitLongerThanAYear", images("    sharing: {wait_for: 2, wait_timeout: 999999999h}\n"),
       "x.yaml:6:42: streams.t.sharing.wait_timeout: \"999999999h\" is longer than a year, which is 8760h"},
      {"EvictionBeforeAHeartbeat", kNothing + ok + "server: {evict_after: 200ms}\n",
       "x.yaml:3:23: server.evict_after: \"200ms\" is too short: clients send a heartbeat twice a second; "
       "expected at least 1s"},
      {"LagOfAShard", images("    delivery: shard\n    sharing: {wait_for: 2, on_lag: wait}\n"),
       "x.yaml:7:28: streams.t.sharing.on_lag: applies only to broadcast streams, because ranks of a shard "
       "stream share no slots: remove it; if `extends` inherits it, write an empty key here"},
      {"PatienceWithoutDetachment", images("    sharing: {on_lag: wait, patience: 10s}\n"),
       "x.yaml:6:29: streams.t.sharing.patience: applies only with `on_lag: detach`, because with `wait` "
       "all clients wait for the slowest: remove it; if `extends` inherits it, write an empty key here"},
      {"TimeWithoutWaitFor", images("    sharing: {wait_timeout: 5s}\n"),
       "x.yaml:6:15: streams.t.sharing.wait_timeout: applies only with `wait_for`, without which no client "
       "waits for others: set `wait_for`, or remove it; if `extends` inherits it, write an empty key here"},
      {"WaitForWithoutTime", images("    sharing: {wait_for: 2, wait_timeout: 0s}\n"),
       "x.yaml:6:42: streams.t.sharing.wait_timeout: 0s: no client would wait for the 2 clients of wait_for. "
       "Raise it, or remove wait_for"},
      {"DurationWithoutUnit", kNothing + ok + "server: {evict_after: 30}\n",
       "x.yaml:3:23: server.evict_after: 30 is not a duration such as 500ms, 30s or 2m; did you mean "
       "\"30s\"?"},
      {"DurationWithUnknownUnit", kNothing + ok + "server: {drain_timeout: 3 weeks}\n",
       "x.yaml:3:25: server.drain_timeout: \"3 weeks\" is not a duration such as 500ms, 30s or 2m"},
      {"LogLevel", kNothing + ok + "server: {log_level: INF}\n",
       "x.yaml:3:21: server.log_level: \"INF\" is not one of trace, debug, info, warning, error, off; did "
       "you mean "
       "\"info\"?"},
      {"LongDirectory", kNothing + ok + "server: {directory: /" + std::string(100, 'd') + "}\n",
       "x.yaml:3:21: server.directory: \"/" + std::string(100, 'd') +
           "\" is too long: the path of a socket in it has 114 bytes, and 107 are possible"},
      // sources
      {"UnknownType", "sources: {s: {type: image_foldr, path: /x}}\n" + ok,
       "x.yaml:1:21: sources.s.type: \"image_foldr\" is not one of " + kTypes +
           "; did you mean \"image_folder\"?"},
      {"NoType", "sources: {s: {path: /x}}\n" + ok,
       "x.yaml:1:11: sources.s: key \"type\" is missing: one of " + kTypes},
      {"MistypedType", "sources: {s: {tpye: idx, path: /x}}\n" + ok,
       "x.yaml:1:15: sources.s.tpye: unknown key \"tpye\"; did you mean \"type\"?"},
      {"MultiHotWithoutClasses",
       "sources: {s: {type: manifest, path: /x.csv, fields: {tags: {kind: multi_hot}}}}\n" + ok,
       "x.yaml:1:54: sources.s.fields.tags: key \"classes\" is missing: the rows of multi_hot have one value "
       "per class"},
      {"ShardsByNumber", "sources: {s: {type: webdataset, path: 7}}\n" + ok,
       "x.yaml:1:39: sources.s.path: 7 is not a path, or a list of paths"},
      {"ExtensionWithADot", "sources: {s: {type: webdataset, path: /x, image: [.jpg]}}\n" + ok,
       "x.yaml:1:51: sources.s.image[0]: \".jpg\" is not a file name's extension without the leading dot"},
      {"IndexCache", "sources: {s: {type: webdataset, path: /x, index_cache: no}}\n" + ok,
       "x.yaml:1:56: sources.s.index_cache: \"no\" is not one of on, off; did you mean \"on\"?"},
      {"ArraysWithoutFiles", "sources: {s: {type: npy}}\n" + ok,
       "x.yaml:1:11: sources.s: needs path (an .npz file) or fields (a .npy file each)"},
      {"FieldInCapitals", "sources: {s: {type: npy, fields: {Image: /x}}}\n" + ok,
       "x.yaml:1:35: sources.s.fields.Image: \"Image\" is not a field's name: 1 to 47 lower-case "
       "letters, digits and _, a letter first"},
      {"SourceThatIsAPath", "sources: {s: /x}\n" + ok,
       "x.yaml:1:14: sources.s: \"/x\" is not a map with the key type"},
      {"FolderWithoutPath", "sources: {s: {type: image_folder}}\n" + ok,
       "x.yaml:1:11: sources.s: key \"path\" is missing"},
      {"SyntheticWithPath", "sources: {s: {type: synthetic, count: 1, bytes: 1, path: /x}}\n" + ok,
       "x.yaml:1:52: sources.s.path: unknown key \"path\"; known here: bytes, count, split, type"},
      {"SyntheticOfNothing", "sources: {s: {type: synthetic, count: 0, bytes: 1}}\n" + ok,
       "x.yaml:1:39: sources.s.count: 0 is not a whole number from 1 to 1000000000000"},
      // caches
      {"CacheWithoutUnit", "sources: {s: {type: image_folder, path: /x, cache: {decoded: 8}}}\n" + ok,
       "x.yaml:1:62: sources.s.cache.decoded: 8 is not a size such as 512MB, 8GiB or 1.5 TB"},
      {"CacheOfNothing", "sources: {s: {type: image_folder, path: /x, cache: {decoded: 0MB}}}\n" + ok,
       "x.yaml:1:62: sources.s.cache.decoded: \"0MB\" is no room for anything; leave it out"},
      {"CacheOfMoreThanAll",
       "sources: {s: {type: image_folder, path: /x, cache: {encoded: 99999999TB}}}\n" + ok,
       "x.yaml:1:62: sources.s.cache.encoded: \"99999999TB\" is too large: the limit is 9007 TB"},
      {"SizeOfManyDigits", images("    sharing: {window: 99999999999999999999GB}\n"),
       "x.yaml:6:23: streams.t.sharing.window: \"99999999999999999999GB\" is too large: the limit is 9007 "
       "TB"},
      {"SizeOfZeroWithoutUnit", images("    sharing: {window: 0}\n"),
       "x.yaml:6:23: streams.t.sharing.window: 0 is not a size such as 512MB, 8GiB or 1.5 TB; write 0B"},
      {"DurationOfManyDigits", kNothing + ok + "server: {group_grace: 99999999999999999999s}\n",
       "x.yaml:3:23: server.group_grace: \"99999999999999999999s\" is longer than a year, which is 8760h"},
      {"CacheOfWhatIsInMemory",
       "sources: {s: {type: idx, images: /x, labels: /y, cache: {encoded: 1GB}}}\n" + ok,
       "x.yaml:1:58: sources.s.cache.encoded: an idx source is in memory already; leave this out"},
      {"CacheOfWhatIsMapped", "sources: {s: {type: lmdb, path: /x, cache: {encoded: 1GB}}}\n" + ok,
       "x.yaml:1:45: sources.s.cache.encoded: records of a packed set are read where they lie, and the page "
       "cache keeps them; leave this out"},
      {"UnknownCache", "sources: {s: {type: image_folder, path: /x, cache: {decode: 1GB}}}\n" + ok,
       "x.yaml:1:53: sources.s.cache.decode: unknown key \"decode\"; did you mean \"decoded\"?"},
      // splits
      {"TwoWays",
       "sources: {s: {type: synthetic, count: 9, bytes: 1, split: {fractions: {a: 0.5}, classes: {b: "
       "[c]}}}}\n"
       "streams: {t: {source: s, part: a}}\n",
       "x.yaml:1:52: sources.s.split: has fractions and classes; it takes one of them"},
      {"NoWay",
       "sources: {s: {type: synthetic, count: 9, bytes: 1, split: {seed: 1}}}\nstreams: {t: {source: s, "
       "part: a}}\n",
       "x.yaml:1:52: sources.s.split: needs fractions, classes or lists"},
      {"FractionsAboveOne",
       "sources: {s: {type: synthetic, count: 9, bytes: 1, split: {fractions: {a: 0.9, b: 0.2}}}}\n"
       "streams: {t: {source: s, part: a}}\n",
       "x.yaml:1:71: sources.s.split.fractions: the fractions add up to 1.1, more than 1"},
      {"FractionZero",
       "sources: {s: {type: synthetic, count: 9, bytes: 1, split: {fractions: {a: 0}}}}\nstreams: {t: "
       "{source: s, part: a}}\n",
       "x.yaml:1:75: sources.s.split.fractions.a: 0 is not a number above 0 and at most 1"},
      {"ClassInTwoParts",
       "sources: {s: {type: image_folder, path: /x, split: {classes: {a: [cat], b: [dog, cat]}}}}\n"
       "streams: {t: {source: s, part: a, transforms: [center_crop: {size: 1}]}}\n",
       "x.yaml:1:82: sources.s.split.classes.b[1]: class \"cat\" is in part \"a\" already; parts are "
       "disjoint"},
      {"ClassThatLooksLikeANumber",
       "sources: {s: {type: image_folder, path: /x, split: {classes: {a: [7]}}}}\n"
       "streams: {t: {source: s, part: a, transforms: [center_crop: {size: 1}]}}\n",
       "x.yaml:1:67: sources.s.split.classes.a[0]: 7 is not the name of a class (in quotes if it looks like "
       "a number)"},
      // streams
      {"UnknownSource", kNothing + "streams: {t: {source: z}}\n",
       "x.yaml:2:23: streams.t.source: there is no source \"z\"; sources: s"},
      {"MistypedSource",
       "sources: {photos: {type: synthetic, count: 1, bytes: 1}}\nstreams: {t: {source: photo}}\n",
       "x.yaml:2:23: streams.t.source: there is no source \"photo\"; sources: photos; did you mean "
       "\"photos\"?"},
      {"PartMissing",
       "sources: {s: {type: synthetic, count: 9, bytes: 1, split: {fractions: {train: 0.5, val: 0.5}}}}\n"
       "streams:\n  t: {source: s}\n",
       "x.yaml:3:3: streams.t: key \"part\" is missing: source \"s\" is split into train, val"},
      {"PartUnknown",
       "sources: {s: {type: synthetic, count: 9, bytes: 1, split: {fractions: {train: 0.5, val: 0.5}}}}\n"
       "streams:\n  t: {source: s, part: trian}\n",
       "x.yaml:3:24: streams.t.part: source \"s\" has no part \"trian\"; parts: train, val; did you mean "
       "\"train\"?"},
      {"PartOfAWhole", kNothing + "streams: {t: {source: s, part: train}}\n",
       "x.yaml:2:26: streams.t.part: source \"s\" has no split, so no parts; leave this out, or split it"},
      {"TransformsOfASyntheticSource",
       kNothing + "streams: {t: {source: s, transforms: [center_crop: {size: 1}]}}\n",
       "x.yaml:2:26: streams.t.transforms: a source of type synthetic has no images; leave this out"},
      {"WhatAFeedDecides",
       "sources: {f: {type: feed, samples: 9, batch_size: 3, fields: [{name: x, dtype: int64}]}}\n"
       "streams:\n  t: {source: f, batch_size: 4, sharing: {on_lag: detach}}\n",
       "x.yaml:3:18: streams.t.batch_size: the source is a feed: its batches come as they are, in its order; "
       "leave this out\n"
       "x.yaml:3:51: streams.t.sharing.on_lag: the source is a feed, which cannot give a batch twice: "
       "clients wait for each other"},
      {"TwoStreamsOfAFeed",
       "sources: {f: {type: feed, samples: 9, batch_size: 3, fields: [{name: x, dtype: int64}]}}\n"
       "streams:\n  a: {source: f}\n  b: {source: f}\n",
       "x.yaml:4:15: streams.b.source: feed \"f\" is stream \"a\"'s already: each of its batches comes once"},
      {"BatchSizeZero", images("    batch_size: 0\n"),
       "x.yaml:6:17: streams.t.batch_size: 0 is not a whole number from 1 to 1000000"},
      {"BatchSizeFraction", images("    batch_size: 2.5\n"),
       "x.yaml:6:17: streams.t.batch_size: 2.5 is not a whole number from 1 to 1000000"},
      {"BatchSizeEmpty", images("    batch_size:\n"),
       "x.yaml:6:5: streams.t.batch_size: nothing is not a whole number from 1 to 1000000"},
      {"BatchSizeBeyondIntegers", images("    batch_size: 99999999999999999999999\n"),
       "x.yaml:6:17: streams.t.batch_size: 9.999999999999999e+22 is not a whole number from 1 to 1000000"},
      {"SeedNegative", images("    seed: -1\n"),
       "x.yaml:6:11: streams.t.seed: -1 is not a whole number from 0 to 9223372036854775807"},
      {"ShuffleYes", images("    shuffle: yes\n"),
       "x.yaml:6:14: streams.t.shuffle: \"yes\" is not true or false"},
      {"Last", images("    last: shrot\n"),
       "x.yaml:6:11: streams.t.last: \"shrot\" is not one of short, pad, drop; did you mean \"short\"?"},
      {"Delivery", images("    delivery: shards\n"),
       "x.yaml:6:15: streams.t.delivery: \"shards\" is not one of broadcast, shard; did you mean \"shard\"?"},
      {"MaxBad", images("    max_bad: 1.5\n"),
       "x.yaml:6:14: streams.t.max_bad: 1.5 is not a number from 0 to 1"},
      {"Dtype", images("    output: {dtype: float32x}\n"),
       "x.yaml:6:21: streams.t.output.dtype: \"float32x\" is not one of uint8, float16, bfloat16, float32; "
       "did you mean "
       "\"float32\"?"},
      {"MaxLag", images("    ring: {prefetch: 2}\n    sharing: {max_lag: 3}\n"),
       "x.yaml:7:24: streams.t.sharing.max_lag: 3 is more than ring.prefetch, which is 2: raise "
       "ring.prefetch, or lower max_lag"},
      // transforms
      {"UnknownTransform", with_transforms("      - random_resize_crop: {size: 8}\n"),
       "x.yaml:6:9: streams.t.transforms[0].random_resize_crop: unknown key \"random_resize_crop\"; did you "
       "mean "
       "\"random_resized_crop\"?"},
      {"UnknownTransformWord", with_transforms("      - random_horizontal_flp\n"),
       "x.yaml:6:9: streams.t.transforms[0]: \"random_horizontal_flp\" is not random_horizontal_flip, "
       "random_vertical_flip, random_rotate90, random_grayscale, rand_augment, trivial_augment_wide, "
       "random_erasing or to_y, or one transform with its arguments, as in `resize: {size: 224}` (each is a "
       "list item of its own); did "
       "you "
       "mean "
       "\"random_horizontal_flip\"?"},
      {"TwoTransformsInOneItem",
       with_transforms("      - center_crop: {size: 8}\n        resize: {size: 8}\n"),
       "x.yaml:6:9: streams.t.transforms[0]: a map is not one transform with its arguments, as in `resize: "
       "{size: "
       "224}` (each is a list item of its own)"},
      {"CropWithoutSize", with_transforms("      - center_crop: {}\n"),
       "x.yaml:6:9: streams.t.transforms[0].center_crop: key \"size\" is missing"},
      {"SizeOfThree", with_transforms("      - center_crop: {size: [1, 2, 3]}\n"),
       "x.yaml:6:29: streams.t.transforms[0].center_crop.size: [1,2,3] is not [height, width]"},
      {"SizeZero", with_transforms("      - center_crop: {size: [0, 3]}\n"),
       "x.yaml:6:30: streams.t.transforms[0].center_crop.size[0]: 0 is not a whole number from 1 to 16384"},
      {"ScaleBackwards", with_transforms("      - random_resized_crop: {size: 8, scale: [1, 0.5]}\n"),
       "x.yaml:6:9: streams.t.transforms[0]: random_resized_crop: scale [1, 0.5] must rise within (0, 1]"},
      {"SecondTransformWrong", with_transforms("      " + kCrop + "\n      - random_crop: {size: 9}\n"),
       "x.yaml:7:9: streams.t.transforms[1]: random_crop: size [9, 9] is larger than the [8, 8] image with "
       "its padding: set `pad_if_needed: true`, or put a resize before it"},
      {"PaddingOfThree", with_transforms("      - random_crop: {size: 9, padding: [1, 2, 3]}\n"),
       "x.yaml:6:41: streams.t.transforms[0].random_crop.padding: [1,2,3] is not [left and right, top and "
       "bottom] or [left, top, right, bottom]"},
      {"MeanOfTwo",
       with_transforms(
           "      " + kCrop +
           "\n      - normalize: {mean: [0.5, 0.5], std: [1, 1, 1]}\n    output: {dtype: float32}\n"),
       "x.yaml:7:9: streams.t.transforms[1]: normalize has 2 means and 3 stds: give one of each per channel"},
      {"MeanOfOneAndStdOfThree",
       with_transforms("      " + kCrop +
                       "\n      - normalize: {mean: [0.5], std: [1, 1, 1]}\n    output: {dtype: float32}\n"),
       "x.yaml:7:9: streams.t.transforms[1]: normalize has 1 means and 3 stds: give one of each per channel"},
      {"StdZero",
       with_transforms(
           "      " + kCrop +
           "\n      - normalize: {mean: [0, 0, 0], std: [1, 0, 1]}\n    output: {dtype: float32}\n"),
       "x.yaml:7:47: streams.t.transforms[1].normalize.std[1]: 0 is not a number above 0"},
      {"NormalizeToBytes",
       with_transforms("      " + kCrop +
                       "\n      - normalize: {mean: [0, 0, 0], std: [1, 1, 1]}\n"
                       "    output: {dtype: uint8}\n"),
       "x.yaml:7:9: streams.t.transforms[1]: normalize gives fractions, which uint8 cannot hold; set "
       "output.dtype to "
       "float32, float16 or bfloat16"},
      {"NormalizeFirst",
       with_transforms("      - normalize: {mean: [0, 0, 0], std: [1, 1, 1]}\n      " + kCrop +
                       "\n    output: {dtype: float32}\n"),
       "x.yaml:6:9: streams.t.transforms[0]: normalize must be the last transform, but for random_erasing"},
      {"NoFixedSize", with_transforms("      - resize: {size: 8}\n"),
       "x.yaml:5:5: streams.t.transforms: images leave the chain with different sizes: end it with "
       "random_resized_crop, "
       "random_crop, center_crop or resize to [height, width]"},
  };
}

class ConfigProblems : public testing::TestWithParam<Wrong> {};

TEST_P(ConfigProblems, AreNamedWithPlaceValueAndNearestName) {
  const auto config = parse(GetParam().yaml, "x.yaml");
  ASSERT_FALSE(config) << "was accepted:\n" << GetParam().yaml;
  EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
  EXPECT_EQ(config.error().message, GetParam().expected) << GetParam().yaml;
}

INSTANTIATE_TEST_SUITE_P(Each, ConfigProblems, testing::ValuesIn(cases()),
                         [](const auto& wrong) { return wrong.param.name; });

TEST(Config, NeedsNoCropBeforeTheSourceIsOpen) {
  const auto config = parse(stream(""), "x.yaml");
  EXPECT_TRUE(config) << config.error().message;
}

TEST(Config, ReportsAllProblemsAtOnceInTheOrderOfTheFile) {
  const auto outcome = examine(
      "server: {threads: 0, lgo_level: info}\n"
      "sources:\n  f: {type: image_folder, path: /x}\n  g: {type: synthetic, count: -1, bytes: 1}\n"
      "streams:\n  a: {source: f, last: never, transforms: [center_crop: {size: 8}]}\n"
      "  b: {source: f, transforms: [resize: {size: 8}]}\n  c: {source: h}\n",
      "x.yaml");
  EXPECT_FALSE(outcome.config);
  std::vector<std::string> paths;
  for (const auto& problem : outcome.problems)
    paths.push_back(std::to_string(problem.line) + " " + problem.path);
  EXPECT_THAT(paths, ElementsAre("1 server.threads", "1 server.lgo_level", "4 sources.g.count",
                                 "6 streams.a.last", "7 streams.b.transforms", "8 streams.c.source"));
}

TEST(Config, SaysThatAFileCannotBeRead) {
  const auto missing = load("/nowhere/x.yaml", {}, {});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kConfigInvalid);
  const std::string advice = "`headrace check DATASET > headrace.yaml` proposes one for a dataset";
  EXPECT_EQ(missing.error().message, "/nowhere/x.yaml: cannot be read: No such file or directory; " + advice);
  EXPECT_EQ(load("/tmp", {}, {}).error().message, "/tmp: is a folder; give a YAML file: " + advice);
  EXPECT_EQ(load("/dev/zero", {}, {}).error().message,
            "/dev/zero: expected a configuration of at most 1 MiB, found a larger file");
}

TEST(Config, SaysWhatATransformNeedsThatWasWrittenAsAWord) {
  const auto said = [](const std::string& list) {
    const std::string source = "sources: {s: {type: image_folder, path: /x}}\n";
    const std::string stream = "streams: {t: {source: s, batch_size: 1, transforms: " + list + "}}\n";
    return parse(source + stream, "x.yaml").error().message;
  };
  EXPECT_THAT(said("[resize]"), HasSubstr(R"("resize" needs size: write `- resize: {size: ...}`)"));
  EXPECT_THAT(said("[color_jitter]"), HasSubstr("one at least: write `- color_jitter: {brightness: ...}`"));
  EXPECT_THAT(said("[normalise]"), HasSubstr(R"(did you mean "normalize"?)"));
  EXPECT_THAT(said("[random_horizontal_filp]"), HasSubstr(R"(did you mean "random_horizontal_flip"?)"));
}

}  // namespace
}  // namespace headrace::server::config
