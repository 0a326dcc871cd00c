// Sources behind URLs, against the same files in a folder: shards, manifests, files that are read whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv is POSIX's
#include <zlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "server/source/formats/idx.h"
#include "server/source/formats/manifest.h"
#include "server/source/remote/url_folder.h"
#include "server/source/shards/block_reader.h"
#include "server/source/shards/webdataset.h"
#include "tests/temp_folder.h"
#include "tests/unit/tar_shards.h"
#include "tests/web_server.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(BlockReader, GrowsWhereReadsAreNearAndIsSmallWhereTheyAreFar) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> fills;
  BlockReader blocks(std::uint64_t{1} << 30,
                     [&](std::uint64_t offset, std::span<std::uint8_t> out) -> Result<void> {
                       fills.emplace_back(offset, out.size());
                       for (std::size_t i = 0; i < out.size(); ++i)
                         out[i] = static_cast<std::uint8_t>((offset + i) % 251);
                       return {};
                     });
  std::array<std::uint8_t, 512> out{};
  const auto read = [&](std::uint64_t offset) {
    const auto got = blocks.read(offset, out);
    EXPECT_EQ(out[0], offset % 251);
    return got.value_or(0);
  };
  EXPECT_EQ(read(0), 512U);
  EXPECT_EQ(read(BlockReader::kSmallest - 100), 100U) << "the part that the block has";
  for (std::uint64_t at = 0; at < (64U << 20); at += 40'000) read(at);
  EXPECT_EQ(fills[1].second, 2 * BlockReader::kSmallest);
  EXPECT_EQ(fills.back().second, BlockReader::kLargest);
  EXPECT_LT(fills.size(), 30U) << "1677 headers";
  fills.clear();
  for (std::uint64_t at = 100U << 20; at < (140U << 20); at += 1 << 20) read(at);
  EXPECT_EQ(fills.size(), 40U);
  for (const auto& fill : fills) EXPECT_EQ(fill.second, BlockReader::kSmallest);
  EXPECT_EQ(blocks.read(std::uint64_t{1} << 30, out).value(), 0U) << "the end";
  EXPECT_EQ(read((std::uint64_t{1} << 30) - 3), 3U);
}

class RemoteSources : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new WebServer; }
  static void TearDownTestSuite() { delete server_; }
  RemoteSources() {
    server_->begin_anew();
    ::setenv("XDG_CACHE_HOME", (folder_.path() / "cache").c_str(), 1);
    options_.backoff = std::chrono::milliseconds(1);
    options_.s3 = {.endpoint = server_->url(""), .region = {}, .anonymous = true};
    remote_ = remote::Remote::make(options_).value_or(nullptr);
  }

  /// The folder's file, for HTTP.
  void publish(const std::string& path, const std::string& etag = "\"1\"", bool ranges = true) {
    std::ifstream file(folder_.path() / path.substr(1), std::ios::binary);
    server_->put(path,
                 {.content = {std::istreambuf_iterator<char>(file), {}}, .etag = etag, .ranges = ranges});
  }
  void put(const std::string& path, const std::string& content) {
    folder_.put(path.substr(1), content);
    publish(path);
  }
  static std::string read(const Source& source, std::uint64_t index) {
    Sample sample;
    const auto done = source.read(index, sample);
    return done ? std::string(sample.item(0).bytes.begin(), sample.item(0).bytes.end())
                : done.error().message;
  }
  void expect_same(const Source& far, const Source& near) {
    ASSERT_EQ(far.size(), near.size());
    for (std::uint64_t i = 0; i < near.size(); ++i) {
      EXPECT_EQ(far.name(i), near.name(i));
      EXPECT_EQ(far.label(i), near.label(i));
      EXPECT_EQ(read(far, i), read(near, i));
    }
    EXPECT_EQ(far.class_names(), near.class_names());
    EXPECT_EQ(far.fingerprint(), near.fingerprint());
  }
  template <class T>
  static std::string refusal(const Result<T>& opened) {
    return opened ? "it was opened" : opened.error().message;
  }

  static inline WebServer* server_ = nullptr;
  TempFolder folder_;
  remote::Options options_;
  RemotePtr remote_;
};

class RemoteShards : public RemoteSources {
 protected:
  RemoteShards() {
    fs::create_directories(folder_.path() / "my set");
    for (const int shard : {0, 1}) {
      const std::string key = "dir/" + std::to_string(shard);
      const std::string name = "/my set/train-" + std::to_string(shard) + ".tar";
      write_tar(folder_.path() / name.substr(1), {{key + "a.jpg", std::string(900'000, 'a')},
                                                  {key + "a.cls", "2"},
                                                  {key + "b.cls", "1"},
                                                  {key + "b.jpg", "image " + key}});
      publish(name);
    }
    far_.paths = {server_->url("/my%20set/train-{0..1}.tar")};
    far_.remote = remote_;
  }
  WebDatasetOptions far_;
};

TEST_F(RemoteShards, AreTheSetThatTheFilesAre) {
  const auto near = open_webdataset({.paths = {(folder_.path() / "my set").string()}, .cache = false});
  const auto far = open_webdataset(far_);
  ASSERT_TRUE(near && far) << refusal(far);
  std::uint64_t asked = 0;
  for (const auto& call : server_->calls()) {
    unsigned long first = 0, last = 0;
    ASSERT_EQ(std::sscanf(call.range.c_str(), "bytes=%lu-%lu", &first, &last), 2);
    asked += last - first + 1;
  }
  EXPECT_LT(asked, 200'000U) << "the large bodies were not requested";
  expect_same(**far, **near);
}

TEST_F(RemoteShards, HaveTheirIndexInTheUsersCacheUntilTheyChange) {
  ASSERT_TRUE(open_webdataset(far_));
  server_->calls();
  const auto again = open_webdataset(far_);
  ASSERT_TRUE(again);
  EXPECT_EQ(server_->calls().size(), 2U) << "one request per shard";
  EXPECT_EQ(read(**again, 1), "image dir/0");
  publish("/my set/train-1.tar", "\"2\"");
  EXPECT_THAT(read(**again, 3), HasSubstr("my set/train-1.tar: it was changed since the dataset was opened"));
  server_->calls();
  const auto anew = open_webdataset(far_);
  ASSERT_TRUE(anew);
  EXPECT_GT(server_->calls().size(), 2U);
  EXPECT_EQ(read(**anew, 3), "image dir/1");
  publish("/my set/train-0.tar", "");
  publish("/my set/train-1.tar", "");
  ASSERT_TRUE(open_webdataset(far_));
  server_->calls();
  ASSERT_TRUE(open_webdataset(far_));
  EXPECT_GT(server_->calls().size(), 2U) << "nothing shows that they are the same, so there is no cache";
}

TEST_F(RemoteShards, ThatCannotBeReadAreNamed) {
  const auto refused = [&](std::vector<std::string> paths) {
    far_.paths = std::move(paths);
    return refusal(open_webdataset(far_));
  };
  const std::string first = server_->url("/my%20set/train-0.tar");
  EXPECT_THAT(refused({server_->url("/x-{0..1}.tar")}), AllOf(HasSubstr("/x-0.tar: the server answers 404"),
                                                              HasSubstr("/x-1.tar: the server answers 404")));
  EXPECT_THAT(refused({first, "/data/b.tar"}), HasSubstr("/data/b.tar: is a file, others are URLs"));
  EXPECT_THAT(refused({first, first}), HasSubstr("is named twice"));
  EXPECT_THAT(refused({server_->url("/my%20set/")}), HasSubstr("HTTP has no listings"));
  EXPECT_THAT(refused({first, "http://other/b.tar"}), HasSubstr("others are of another server or bucket"));
  EXPECT_THAT(refused({first, "https://other/b.tar"}), HasSubstr("others are of another server or bucket"));
  EXPECT_THAT(refused({first, "s3://other/b.tar"}), HasSubstr("others are of another server or bucket"));
  EXPECT_THAT(refused({server_->url("/x-{2..1}.tar")}), HasSubstr("the range {2..1} runs backwards"));
  publish("/my set/train-0.tar", "\"1\"", false);
  EXPECT_THAT(refused({first}), HasSubstr("my set/train-0.tar: the server does not support range requests"));
  server_->put("/cut.tar", {.content = std::string(700, 'x')});
  EXPECT_THAT(refused({server_->url("/cut.tar")}), HasSubstr("/cut.tar: is not a tar file"));
}

TEST_F(RemoteSources, AManifestAndItsImagesMayBothBeUrls) {
  put("/set/a b.jpg", "first");
  put("/set/c.jpg", "second");
  put("/set/train.csv", "path,label\na b.jpg,1\nc.jpg,0\n");
  const auto near = open_manifest({.path = folder_.path() / "set/train.csv", .root = {}, .fields = {}});
  const auto far = open_manifest(
      {.path = server_->url("/set/train.csv?sig=secret"), .root = {}, .fields = {}, .remote = remote_});
  ASSERT_TRUE(near && far) << refusal(near) << refusal(far);
  expect_same(**far, **near);
  const auto mixed = open_manifest({.path = folder_.path() / "set/train.csv",
                                    .root = server_->url("/set"),
                                    .fields = {},
                                    .remote = remote_});
  ASSERT_TRUE(mixed) << refusal(mixed);
  expect_same(**mixed, **near);
  server_->put("/set/c.jpg", {.content = "longer than before"});
  EXPECT_THAT(read(**far, 1), HasSubstr("/set/c.jpg: has 18 bytes, had 6; it was changed since"));
  server_->put("/set/c.jpg", {.content = "sECOND", .etag = "\"2\""});
  EXPECT_THAT(read(**far, 1), HasSubstr("/set/c.jpg: it was changed since"));
}

TEST_F(RemoteSources, WrongLinesOfAManifestAreNamed) {
  put("/set/a.jpg", "first");
  put("/set/train.csv", "path,label\na.jpg,1\nnone.jpg,0\n");
  const auto open = [&](const std::string& path) {
    return refusal(open_manifest({.path = server_->url(path), .root = {}, .fields = {}, .remote = remote_}));
  };
  EXPECT_THAT(open("/set/train.csv"), AllOf(HasSubstr("/set/train.csv:3: column `path`: "),
                                            HasSubstr("/set/none.jpg: the server answers 404")));
  EXPECT_THAT(open("/set/none.csv"), HasSubstr("/set/none.csv: the server answers 404"));
  put("/set/train.xml", "x");
  EXPECT_THAT(open("/set/train.xml?sig=secret"),
              AllOf(HasSubstr("train.xml?...: \".xml\" is none of"), testing::Not(HasSubstr("secret"))));
}

TEST_F(RemoteSources, FilesThatLieInMemoryAreFetchedWhole) {
  const std::string head("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02", 16);
  put("/images", head + "abcd");
  put("/labels", std::string("\0\0\x08\x01\0\0\0\x02", 8) + std::string("\x01\x00", 2));
  const auto near = open_idx({folder_.path() / "images", folder_.path() / "labels", {}});
  const auto far = open_idx({server_->url("/images"), server_->url("/labels"), {}, remote_});
  ASSERT_TRUE(near && far) << refusal(far);
  expect_same(**far, **near);
  const gzFile packed = ::gzopen((folder_.path() / "images.gz").c_str(), "wb");
  ::gzwrite(packed, (head + "abcd").data(), 20);
  ::gzclose(packed);
  publish("/images.gz");
  const auto unpacked = open_idx({server_->url("/images.gz"), server_->url("/labels"), {}, remote_});
  ASSERT_TRUE(unpacked) << refusal(unpacked);
  EXPECT_EQ((*unpacked)->fingerprint(), (*near)->fingerprint());
  EXPECT_THAT(refusal(open_idx({server_->url("/none"), server_->url("/labels"), {}, remote_})),
              HasSubstr("/none: the server answers 404"));
}

TEST_F(RemoteSources, ABucketWithoutClassFoldersIsRefused) {
  server_->put("/bucket/",
               {.content = "<ListBucketResult><Contents><Key>set/1.jpg</Key><Size>1</Size></Contents>"
                           "</ListBucketResult>"});
  EXPECT_THAT(refusal(open_url_folder("s3://bucket/set", remote_)),
              HasSubstr("image folder s3://bucket/set: holds 1 objects but no class folders"));
  server_->put("/bucket/",
               {.content = "<ListBucketResult><CommonPrefixes><Prefix>set/cat/</Prefix></CommonPrefixes>"
                           "<Contents><Key>set/cat/1.txt</Key><Size>1</Size></Contents>"
                           "</ListBucketResult>"});
  EXPECT_THAT(refusal(open_url_folder("s3://bucket/set/", remote_)),
              HasSubstr("1 of 1 class folders hold no .jpg, .jpeg or .png: cat"));
}

}  // namespace
}  // namespace headrace::server::source
