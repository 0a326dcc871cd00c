// WebDataset shards: the members of a sample, the offsets of its bytes, errors, and the cached index.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "server/source/detect/detect.h"
#include "server/source/files/open_files.h"
#include "server/source/shards/shard_list.h"
#include "server/source/shards/webdataset.h"
#include "tests/opened_source.h"
#include "tests/temp_folder.h"
#include "tests/unit/tar_shards.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string text(const Item& item) {
  return {item.bytes.begin(), item.bytes.end()};
}

class WebDatasetTest : public testing::Test {
 protected:
  WebDatasetTest() {
    options_.paths = {(folder_.path() / "train-{000..001}.tar").string()};
    options_.cache = false;
    write_tar(shard(0), first_);
    write_tar(shard(1), {{"c.cls", "0\n"}, {"c.jpg", std::string(2000, 'c')}});
  }

  [[nodiscard]] fs::path shard(int number) const {
    return folder_.path() / ("train-00" + std::to_string(number) + ".tar");
  }
  [[nodiscard]] std::shared_ptr<const Source> open() const { return source_of(open_webdataset(options_)); }
  [[nodiscard]] std::string refusal() const { return why_refused(open_webdataset(options_)); }
  [[nodiscard]] std::string refusal_of(const std::vector<TestMember>& members) const {
    write_tar(shard(0), members);
    return refusal();
  }
  static std::string read(const Source& source, std::uint64_t index) {
    Sample sample;
    const auto done = source.read(index, sample);
    return done ? text(sample.item(0)) : done.error().message;
  }

  TempFolder folder_;
  WebDatasetOptions options_;
  const std::vector<TestMember> first_{{"dir/", ""},         {"dir/a.jpg", "image a"},
                                       {"dir/a.cls", "2"},   {"dir/b.cls", " 1 \n"},
                                       {"dir/b.json", "{}"}, {"dir/b.PNG", "image b"}};
};

TEST_F(WebDatasetTest, MembersWithOneKeyInARowAreASample) {
  const auto source = open();
  ASSERT_EQ(source->size(), 3u);
  EXPECT_EQ(source->name(0), "train-000.tar/dir/a.jpg");
  EXPECT_EQ(source->name(1), "train-000.tar/dir/b.png");
  EXPECT_EQ(source->name(2), "train-001.tar/c.jpg");
  EXPECT_EQ(read(*source, 0), "image a");
  EXPECT_EQ(read(*source, 1), "image b");
  EXPECT_EQ(read(*source, 2), std::string(2000, 'c'));
  EXPECT_EQ(source->label(0), 2);
  EXPECT_EQ(source->label(1), 1);
  EXPECT_EQ(source->label(2), 0);
  EXPECT_THAT(source->class_names(), ElementsAre("0", "1", "2"));
  EXPECT_THAT(source->warning(), HasSubstr("members that are not served, by extension: 1 json"));
  EXPECT_TRUE(source->labelled());
}

TEST_F(WebDatasetTest, LongAndForeignNamesAreFoundInEveryFormat) {
  const std::string deep = std::string(120, 'd') + "/" + std::string(130, 'x');
  for (const TarFormat format : {TarFormat::kGnu, TarFormat::kPax}) {
    write_tar(shard(0),
              {{deep + ".jpg", "long"},
               {deep + ".cls", "1"},
               {"gr\xc3\xbc\xc3\x9f.jpg", "u"},
               {"gr\xc3\xbc\xc3\x9f.cls", "0"}},
              format);
    const auto source = open();
    ASSERT_EQ(source->size(), 3u);
    EXPECT_EQ(source->name(0), "train-000.tar/" + deep + ".jpg");
    EXPECT_EQ(source->name(1), "train-000.tar/gr\xc3\xbc\xc3\x9f.jpg");
    EXPECT_EQ(read(*source, 0), "long");
    EXPECT_EQ(read(*source, 1), "u");
    EXPECT_EQ(source->label(0), 1);
  }
}

TEST_F(WebDatasetTest, TheFirstExtensionThatASampleHasIsItsImage) {
  write_tar(shard(0), {{"a.seg.png", "mask"}, {"a.png", "png"}, {"a.jpg", "jpg"}, {"a.cls", "0"}});
  EXPECT_EQ(read(*open(), 0), "jpg");
  EXPECT_THAT(open()->warning(), AllOf(HasSubstr("1 png"), HasSubstr("1 seg.png")));
  write_tar(shard(1), {{"c.seg.png", "other"}, {"c.cls", "0"}});
  options_.rule.images = {"seg.png"};
  EXPECT_EQ(read(*open(), 0), "mask");
}

/// A worker reuses its sample for all streams: before, it may have held raw pixels.
TEST_F(WebDatasetTest, AnImageIsNeverTakenForThePixelsThatWereReadBefore) {
  Sample sample;
  sample.item(0).pixels = {28, 28, 1, false};
  ASSERT_TRUE(open()->read(0, sample));
  EXPECT_EQ(sample.item(0).pixels.width, 0);
  EXPECT_EQ(text(sample.item(0)), "image a");
}

TEST_F(WebDatasetTest, LabelsComeFromJsonOrAreLeftOut) {
  write_tar(shard(0), {{"a.jpg", "a"}, {"a.json", R"({"label": 7, "text": "x"})"}});
  write_tar(shard(1), {{"b.json", R"({"label": 3})"}, {"b.jpg", "b"}});
  options_.rule.label = "json.label";
  const auto source = open();
  EXPECT_EQ(source->label(0), 7);
  EXPECT_EQ(source->label(1), 3);
  EXPECT_EQ(source->class_names().size(), 8u);
  EXPECT_EQ(source->warning(), "");
  options_.rule.label = "none";
  const auto without = open();
  EXPECT_FALSE(without->labelled());
  EXPECT_TRUE(without->class_names().empty());
  EXPECT_NE(without->fingerprint(), source->fingerprint());
}

TEST_F(WebDatasetTest, TheFingerprintIsOfNamesSizesLabelsAndOrder) {
  const auto before = open()->fingerprint();
  const auto with = [&](const std::vector<TestMember>& members) {
    write_tar(shard(1), members);
    return open()->fingerprint();
  };
  const std::string image(2000, 'd');
  EXPECT_EQ(with({{"c.cls", "0"}, {"c.jpg", image}, {"c.txt", "x"}}), before);
  EXPECT_NE(with({{"c.cls", "1"}, {"c.jpg", image}}), before);
  EXPECT_NE(with({{"c.cls", "0"}, {"c.jpg", image + "d"}}), before);
  EXPECT_NE(with({{"d.cls", "0"}, {"d.jpg", image}}), before);
  with({{"c.cls", "0"}, {"c.jpg", image}});
  EXPECT_EQ(open()->fingerprint(), before);
  options_.paths = {shard(1).string(), shard(0).string()};
  EXPECT_EQ(read(*open(), 0), image) << "shards in the order of the list";
  EXPECT_NE(open()->fingerprint(), before);
}

TEST_F(WebDatasetTest, SamplesThatLackSomethingAreNamed) {
  EXPECT_THAT(
      refusal_of({{"a.cls", "1"}, {"a.txt", "x"}, {"b.jpg", "x"}}),
      AllOf(HasSubstr(shard(0).string() + ": sample \"a\" has no image (.jpg, .jpeg, .png); it has .txt"),
            HasSubstr("sample \"b\" has no label (.cls)")));
  std::vector<TestMember> many;
  for (int i = 0; i < 25; ++i) many.push_back({std::to_string(i) + ".cls", "0"});
  EXPECT_THAT(refusal_of(many),
              AllOf(HasSubstr("sample \"19\""), Not(HasSubstr("sample \"20\"")), HasSubstr("\nand 5 more")));
  EXPECT_THAT(refusal_of({{"a.cls", "1"}, {"a.jpg", "content"}, {"b.cls", "0"}, {"b.jpg", "", "a.jpg"}}),
              HasSubstr("sample \"b\" has no image"));
  EXPECT_THAT(
      refusal_of(
          {{"a.jpg", "1"}, {"a.cls", "0"}, {"b.jpg", "1"}, {"b.cls", "0"}, {"a.jpg", "2"}, {"a.cls", "0"}}),
      HasSubstr("sample \"a\" occurs twice"));
  EXPECT_THAT(refusal_of({{"a.jpg", "1"}, {"a.jpg", "2"}, {"a.cls", "0"}}),
              HasSubstr("has two members .jpg"));
}

TEST_F(WebDatasetTest, LabelsThatAreNoClassAreNamed) {
  const auto refusal_of_label = [&](const std::string& label) {
    return refusal_of({{"a.jpg", "x"}, {"a.cls", label}});
  };
  EXPECT_THAT(refusal_of_label("cat"), HasSubstr("sample \"a\" has a .cls that is not an integer: \"cat\""));
  EXPECT_THAT(refusal_of_label(""), HasSubstr("not an integer: \"\""));
  EXPECT_THAT(refusal_of_label("1.5"), HasSubstr("not an integer: \"1.5\""));
  EXPECT_THAT(refusal_of_label("-1"), HasSubstr("the label of sample \"a\" is -1, but classes count from 0"));
  EXPECT_THAT(refusal_of_label("1000000"), HasSubstr("without `classes` labels must be below 100000"));
  EXPECT_THAT(refusal_of_label(std::string(100, '1')), HasSubstr("has a .cls of 100 bytes"));
  options_.rule.classes = {"cat", "dog"};
  EXPECT_THAT(refusal_of_label("2"), HasSubstr("is 2, which has no class: `classes` names 2"));
  options_.rule.classes.emplace_back("emu");
  write_tar(shard(0), first_);
  EXPECT_THAT(open()->class_names(), ElementsAre("cat", "dog", "emu"));

  options_.rule = {{"jpg"}, "json.label", {}};
  const auto refusal_of_json = [&](const std::string& json) {
    return refusal_of({{"a.jpg", "x"}, {"a.json", json}});
  };
  EXPECT_THAT(refusal_of_json("{\"l\": 1}"), HasSubstr("has no \"label\" in its .json"));
  EXPECT_THAT(refusal_of_json("{\"label\": 1"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of_json("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal_of_json("{\"label\": \"1\"}"), HasSubstr("that is not an integer: \"1\""));
  EXPECT_THAT(refusal_of_json("{\"label\": 18446744073709551615}"), HasSubstr("that is not an integer"));
  EXPECT_THAT(refusal_of_json("{\"label\": 1}" + std::string(1 << 20, ' ')), HasSubstr("are read"));
}

TEST_F(WebDatasetTest, DamagedShardsAreNamedWithThePlace) {
  const auto whole = fs::file_size(shard(1));
  fs::resize_file(shard(1), 1536 + 100);
  EXPECT_THAT(refusal(), HasSubstr(shard(1).string() +
                                   ": is truncated: \"c.jpg\" begins at byte 1536 and has 2000 bytes, "
                                   "the file ends at 1636"));
  write_tar(shard(1), {{"c.cls", "0\n"}, {"c.jpg", std::string(2000, 'c')}});
  fs::resize_file(shard(1), 1536 + 2048);
  EXPECT_THAT(refusal(), HasSubstr("ends at byte 3584 without the blocks of zeros that close a tar archive"));
  fs::resize_file(shard(1), 1200);
  EXPECT_THAT(refusal(), HasSubstr("is damaged or truncated at byte 1024 of 1200"));
  fs::resize_file(shard(1), 0);
  EXPECT_THAT(refusal(), HasSubstr(": is empty"));
  std::ofstream(shard(1)) << std::string(5000, 'x');
  EXPECT_THAT(refusal(), HasSubstr("is not a tar file"));
  write_tar(shard(1), first_);
  std::ofstream(shard(1), std::ios::app) << std::ifstream(shard(0)).rdbuf();
  EXPECT_THAT(refusal(), HasSubstr("has data after the end of its archive, at byte"));
  write_tar(shard(1), first_, TarFormat::kUstar, true);
  EXPECT_THAT(refusal(), HasSubstr("is compressed (gzip)"));
  EXPECT_GT(whole, 2000u);
}

TEST_F(WebDatasetTest, SparseMembersAreRefused) {
  const fs::path sparse = folder_.put("s.jpg", "x");
  fs::resize_file(sparse, 1 << 20);
  const std::string command = "tar -C " + folder_.path().string() + " -S -cf " + shard(0).string() + " s.jpg";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(refusal(), HasSubstr("\"s.jpg\" is a sparse member"));
}

TEST_F(WebDatasetTest, EveryCutIsRefusedAndNeverCrashes) {
  std::ifstream file(shard(0), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  options_.paths = {(folder_.path() / "cut.tar").string()};
  for (std::size_t size = 0; size < 6 * 1024; size += 37) {
    folder_.put("cut.tar", whole.substr(0, size));
    EXPECT_FALSE(open_webdataset(options_)) << size;
  }
}

TEST_F(WebDatasetTest, ASampleThatIsReadLaterIsSeenToBeCut) {
  const auto source = open();
  fs::resize_file(shard(1), 1700);
  EXPECT_THAT(read(*source, 2), HasSubstr(shard(1).string() + ": has 1700 bytes, had"));
  fs::remove(shard(0));
  EXPECT_THAT(read(*source, 0), HasSubstr(shard(0).string() + ": vanished"));
  options_.read.max_bytes = 1999;
  write_tar(shard(0), first_);
  write_tar(shard(1), {{"c.cls", "0\n"}, {"c.jpg", std::string(2000, 'c')}});
  Sample sample;
  EXPECT_EQ(open()->read(2, sample).error().code, ErrorCode::kBadSample);
}

TEST_F(WebDatasetTest, ReadErrorsAreTriedAgainAndThenNamed) {
  int calls = 0, failing = 2;
  options_.read.backoff = std::chrono::milliseconds(0);
  options_.read.pread = [&](int fd, void* buffer, std::size_t bytes, off_t offset) -> ssize_t {
    if (++calls > failing) return ::pread(fd, buffer, bytes, offset);
    errno = EIO;
    return -1;
  };
  const auto source = open();
  EXPECT_EQ(read(*source, 0), "image a");
  calls = 0;
  failing = 100;
  Sample sample;
  const auto failed = source->read(0, sample);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kTransientIo);
  EXPECT_THAT(failed.error().message, HasSubstr("train-000.tar: cannot be read at byte"));
}

TEST_F(WebDatasetTest, ManyWorkersReadOverFewDescriptors) {
  options_.paths.clear();
  for (int i = 0; i < 40; ++i) {
    const fs::path path = folder_.path() / ("many-" + std::to_string(i) + ".tar");
    write_tar(path, {{"k.jpg", "image " + std::to_string(i)}, {"k.cls", "0"}});
    options_.paths.push_back(path.string());
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 32;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(open_files_limit(), 8u);
  const auto source = open();
  std::vector<std::thread> workers;
  for (unsigned worker = 0; worker < 4; ++worker)
    workers.emplace_back([&, worker] {
      for (std::uint64_t i = 0; i < 400; ++i) {
        const std::uint64_t index = (i * 7 + worker * 11) % 40;
        EXPECT_EQ(read(*source, index), "image " + std::to_string(index));
      }
    });
  for (std::thread& worker : workers) worker.join();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

class IndexCacheTest : public WebDatasetTest {
 protected:
  IndexCacheTest() { options_.cache = true; }
  [[nodiscard]] std::vector<fs::path> caches() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".index") out.push_back(entry.path());
    return out;
  }
};

TEST_F(IndexCacheTest, TheNextStartReadsTheIndexFromTheFile) {
  const auto walked = open();
  ASSERT_EQ(caches().size(), 1u);
  // Same size and modification time, other content: only a walk through the shard notices it.
  const auto time = fs::last_write_time(shard(0));
  std::string other(fs::file_size(shard(0)), 'x');
  std::ofstream(shard(0), std::ios::binary) << other;
  fs::last_write_time(shard(0), time);
  const auto cached = open();
  ASSERT_TRUE(cached);
  EXPECT_EQ(cached->fingerprint(), walked->fingerprint());
  EXPECT_EQ(cached->name(1), walked->name(1));
  EXPECT_EQ(cached->label(0), 2);
  EXPECT_EQ(cached->warning(), walked->warning());
  EXPECT_EQ(read(*cached, 0), "xxxxxxx");
  options_.cache = false;
  EXPECT_THAT(refusal(), HasSubstr("is not a tar file"));
}

TEST_F(IndexCacheTest, AnotherShardOrAnotherRuleIsIndexedAnew) {
  EXPECT_EQ(open()->size(), 3u);
  write_tar(shard(1), {{"c.cls", "0"}, {"c.jpg", "1"}, {"d.cls", "0"}, {"d.jpg", "1"}});
  EXPECT_EQ(open()->size(), 4u);
  options_.rule.images = {"png", "jpg"};
  EXPECT_EQ(open()->name(0), "train-000.tar/dir/a.jpg");
  EXPECT_EQ(caches().size(), 2u);
}

TEST_F(IndexCacheTest, AFileWithAnyDamagedByteIsIndexedAgain) {
  const auto good = open()->fingerprint();
  const fs::path cache = caches().at(0);
  std::ifstream file(cache, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xFF);
    std::ofstream(cache, std::ios::binary) << damaged;
    ASSERT_EQ(open()->fingerprint(), good) << at;
  }
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    std::ofstream(cache, std::ios::binary) << whole.substr(0, size);
    ASSERT_EQ(open()->fingerprint(), good) << size;
  }
  std::ifstream again(cache, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(again), {}), whole) << "the index was written again";
}

TEST(ShardList, PatternsFoldersAndListsAreExpandedInOrder) {
  const auto names = [](const std::vector<std::string>& paths) {
    std::vector<std::string> out;
    for (const fs::path& path : list_shards(paths).value_or(std::vector<fs::path>{}))
      out.push_back(path.string());
    return out;
  };
  EXPECT_THAT(names({"/s/a-{08..11}.tar"}),
              ElementsAre("/s/a-08.tar", "/s/a-09.tar", "/s/a-10.tar", "/s/a-11.tar"));
  EXPECT_THAT(names({"/s/{9..10}/{0..1}.tar"}),
              ElementsAre("/s/9/0.tar", "/s/9/1.tar", "/s/10/0.tar", "/s/10/1.tar"));
  const TempFolder folder;
  folder.put("b.tar", "x");
  folder.put("a.tar", "x");
  folder.put("notes.txt", "x");
  EXPECT_THAT(names({folder.path().string(), "/z.tar"}),
              ElementsAre(folder.path() / "a.tar", folder.path() / "b.tar", "/z.tar"));
}

TEST(ShardList, WhatMeansNoShardsIsNamed) {
  const auto refusal = [](const std::string& path) {
    const auto listed = list_shards({path});
    return listed ? "it was listed" : listed.error().message;
  };
  EXPECT_THAT(refusal("/s/{2..1}.tar"), HasSubstr("the range {2..1} runs backwards"));
  EXPECT_THAT(refusal("/s/{0..99999999}.tar"), HasSubstr("means more than 1000000 shards"));
  EXPECT_THAT(refusal("/s/{1..2}/../a.tar"), HasSubstr("is named twice"));
  const TempFolder folder;
  EXPECT_THAT(refusal(folder.path().string()), HasSubstr("holds no .tar file"));
  folder.put("a.tar.gz", "x");
  EXPECT_THAT(refusal(folder.path().string()), HasSubstr("holds 1 compressed tar files and no .tar"));
  const auto opened = open_webdataset({.paths = {(folder.path() / "x-{0..1}.tar").string()}, .cache = false});
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message,
              AllOf(HasSubstr("x-0.tar: No such file"), HasSubstr("x-1.tar: No such file")));
}

}  // namespace
}  // namespace headrace::server::source
