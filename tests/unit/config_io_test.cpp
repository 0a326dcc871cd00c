// A source's `io`: its parsed values, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/config.h"
#include "server/source/shards/webdataset.h"

namespace headrace::server::config {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string text(const std::string& source) {
  return "sources:\n  f: {" + source + "}\nstreams: {t: {source: f, transforms: [center_crop: {size: 8}]}}\n";
}

std::optional<IoConfig> sound(const std::string& io) {
  const auto config = parse(text("type: image_folder, path: /data" + io), "/etc/x.yaml");
  EXPECT_TRUE(config) << config.error().message;
  return config ? config->sources.at("f").io : std::nullopt;
}

std::string refused(const std::string& source) {
  const auto config = parse(text(source), "x.yaml");
  EXPECT_FALSE(config) << "was taken: " << source;
  return config ? "" : config.error().message;
}

TEST(ConfigIo, IsOffUnlessItIsThere) {
  EXPECT_FALSE(sound(""));
  const auto io = sound(", io: {}");
  ASSERT_TRUE(io);
  EXPECT_EQ(io->threads, 64U);
  EXPECT_EQ(io->read_ahead, 256U);
  EXPECT_EQ(io->memory, 256'000'000U);
  EXPECT_EQ(io->delay.count(), 0);
  EXPECT_FALSE(io->disk_cache);
}

TEST(ConfigIo, IsOnWhereSamplesAreReadOverTheNetwork) {
  const auto io = [](const std::string& source) {
    const auto config = parse(text(source), "/etc/x.yaml");
    EXPECT_TRUE(config) << config.error().message;
    return config && config->sources.at("f").io.has_value();
  };
  EXPECT_TRUE(io("type: webdataset, path: \"https://h/a-{0..9}.tar\""));
  EXPECT_TRUE(io("type: webdataset, path: [\"https://h/a.tar\", \"https://h/b.tar\"]"));
  EXPECT_TRUE(io("type: image_folder, path: s3://bucket/set"));
  EXPECT_TRUE(io("type: manifest, path: list.csv, root: https://h/images"));
  EXPECT_TRUE(io("type: manifest, path: https://h/list.csv"));
  EXPECT_FALSE(io("type: manifest, path: https://h/list.csv, root: /images")) << "images are local";
  EXPECT_FALSE(io("type: npy, path: https://h/set.npz")) << "it is in memory";
}

TEST(ConfigIo, RefusesACacheInTheData) {
  for (const char* path : {"/data", "/data/", "/data/cache", "/x/../data"})
    EXPECT_THAT(refused(std::string("type: image_folder, path: /data, io: {disk_cache: {size: 1GB, path: ") +
                        path + "}}"),
                ::testing::HasSubstr("lies in the source's data, /data: give the cache a folder of its own"));
  EXPECT_TRUE(sound(", io: {disk_cache: {size: 1GB, path: /data2}}"));
}

TEST(ConfigNetwork, ReadsEveryKeyAndKeepsUrls) {
  const auto config =
      parse(text("type: webdataset, path: \"s3://b/x/../a.tar\", tls_ca: ca.pem, s3: {endpoint: "
                 "\"http://h:9000\", region: eu-west-1, anonymous: true}"),
            "/etc/x.yaml");
  ASSERT_TRUE(config) << config.error().message;
  const SourceConfig& source = config->sources.at("f");
  EXPECT_EQ(source.as<source::WebDatasetOptions>()->paths.at(0), "s3://b/x/../a.tar");
  ASSERT_TRUE(source.network);
  EXPECT_EQ(source.network->tls_ca, "/etc/ca.pem");
  EXPECT_EQ(source.network->s3.endpoint, "http://h:9000");
  EXPECT_EQ(source.network->s3.region, "eu-west-1");
  EXPECT_TRUE(source.network->s3.anonymous);
  EXPECT_THAT(refused("type: webdataset, path: \"s3://b/a.tar\", s3: {endpoint: h}"),
              HasSubstr("a URL such as"));
  EXPECT_THAT(refused("type: webdataset, path: \"https://h:x/a.tar\""), HasSubstr("a URL cannot be read"));
  EXPECT_THAT(refused("type: idx, images: \"ftp://h/a\", labels: b"),
              HasSubstr("expected an http://, https:// or s3:// URL, found ftp://..."));
  const std::string secret =
      refused("type: webdataset, path: \"s3://b/a.tar\", s3: {endpoint: \"ID:SECRET@minio:9000\"}");
  EXPECT_THAT(secret, AllOf(HasSubstr("(it is not shown) is not a URL such as"), Not(HasSubstr("SECRET"))));
  EXPECT_THAT(refused("type: webdataset, path: \"s3://b/a.tar\", s3: \"http://ID:SECRET@minio:9000\""),
              AllOf(HasSubstr("(it is not shown) is not"), Not(HasSubstr("SECRET"))));
}

TEST(ConfigIo, ReadsEveryKey) {
  EXPECT_EQ(sound(", io: {threads: 8}")->read_ahead, 32U) << "four per thread";
  const auto io = sound(
      ", io: {threads: 8, read_ahead: 0, memory: 1.5GB, delay: 20ms, disk_cache: {path: cache, size: 2TB}}");
  EXPECT_EQ(io->read_ahead, 0U);
  EXPECT_EQ(io->memory, 1'500'000'000U);
  EXPECT_EQ(io->delay.count(), 20);
  ASSERT_TRUE(io->disk_cache);
  EXPECT_EQ(io->disk_cache->path, "/etc/cache");
  EXPECT_EQ(io->disk_cache->size, 2'000'000'000'000U);
}

TEST(ConfigIo, RefusesWhatCannotBeByItsPlace) {
  const auto folder = [](const std::string& io) {
    return refused("type: image_folder, path: /d, io: " + io);
  };
  EXPECT_THAT(folder("{threads: 0}"), HasSubstr("sources.f.io.threads: 0"));
  EXPECT_THAT(folder("{threads: 1025}"), HasSubstr("sources.f.io.threads: 1025"));
  EXPECT_THAT(folder("{read_ahead: -1}"), HasSubstr("sources.f.io.read_ahead: -1"));
  EXPECT_THAT(folder("{memory: 256}"), HasSubstr("a size such as 512MB"));
  EXPECT_THAT(folder("{memory: 999KB}"), HasSubstr("\"999KB\" is not between 1MB and 9007TB"));
  EXPECT_THAT(folder("{memory: 99999TB}"), HasSubstr("sources.f.io.memory"));
  EXPECT_THAT(folder("{delay: 11s}"), HasSubstr("\"11s\" is too long for each read; at most 10s"));
  EXPECT_THAT(folder("{delay: 999999999h}"), HasSubstr("sources.f.io.delay"));
  EXPECT_THAT(folder("{disk_cache: {path: /c}}"), HasSubstr("key \"size\" is missing"));
  EXPECT_THAT(folder("{disk_cache: {path: /c, size: 1KB}}"),
              HasSubstr("sources.f.io.disk_cache.size: \"1KB\" is not between 1MB and 9007TB"));
  EXPECT_THAT(folder("{thread: 4}"), HasSubstr("did you mean \"threads\""));
  EXPECT_THAT(
      refused("type: lmdb, path: /d, io: {disk_cache: {path: /c, size: 1GB}}"),
      HasSubstr("sources.f.io.disk_cache: a source of type lmdb is one file or a few, which are mapped"));
  EXPECT_THAT(refused("type: idx, images: /i, labels: /l, io: {}"), HasSubstr("sources.f.io"));
}

}  // namespace
}  // namespace headrace::server::config
