// Indexes, caches and databases that another user created at our paths.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "server/io/disk_cache.h"
#include "server/source/shards/index_cache.h"
#include "server/source/shards/webdataset.h"
#include "server/store/writer.h"
#include "tests/opened_source.h"
#include "tests/temp_folder.h"
#include "tests/unit/tar_shards.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
namespace io = server::io;
namespace source = server::source;
namespace store = server::store;

constexpr uid_t kSomebody = 54321;

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class PlantedIndex : public ::testing::Test {
 protected:
  PlantedIndex() {
    write_tar(shard(), {{"a.cls", "0"}, {"a.jpg", "image a"}, {"b.cls", "1"}, {"b.jpg", "image b"}});
    options_.paths = {shard().string()};
    options_.rule.classes = {"cat", "dog"};
  }
  [[nodiscard]] fs::path shard() const { return folder_.path() / "train.tar"; }
  [[nodiscard]] fs::path index() const {
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().extension() == ".index") return entry.path();
    ADD_FAILURE() << "there is no index";
    return {};
  }
  [[nodiscard]] std::vector<std::int64_t> labels() const {
    const auto source = source_of(source::open_webdataset(options_));
    return {source->label(0), source->label(1)};
  }
  /// The index with both labels swapped, and a valid checksum.
  [[nodiscard]] static std::string flipped(std::string bytes) {
    std::uint64_t head = 0;
    std::memcpy(&head, bytes.data() + 8, sizeof head);
    for (std::uint32_t i = 0; i < 2; ++i) {
      source::ShardSample sample;
      char* at = bytes.data() + 16 + head + i * sizeof sample;
      std::memcpy(&sample, at, sizeof sample);
      EXPECT_EQ(sample.label, i);
      sample.label = 1 - i;
      std::memcpy(at, &sample, sizeof sample);
    }
    const std::uint64_t hash = XXH3_64bits(bytes.data(), bytes.size() - sizeof hash);
    std::memcpy(bytes.data() + bytes.size() - sizeof hash, &hash, sizeof hash);
    return bytes;
  }

  TempFolder folder_;
  source::WebDatasetOptions options_;
  const std::vector<std::int64_t> right_{0, 1};
};

TEST_F(PlantedIndex, WithOtherLabelsUnderTheSameFingerprintIsNotUsed) {
  ASSERT_EQ(labels(), right_);
  const std::string good = content(index());
  overwrite(index(), flipped(good));
  EXPECT_EQ(labels(), right_);
  EXPECT_EQ(content(index()), good) << "the index is written again";
}

TEST_F(PlantedIndex, OfAnotherUserIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(labels(), right_);
  const struct timespec times[2] = {{0, UTIME_OMIT}, {1'700'000'000, 0}};
  // The attacker's own shards of the same name, size and time, with exchanged labels.
  write_tar(shard(), {{"a.cls", "1"}, {"a.jpg", "image a"}, {"b.cls", "0"}, {"b.jpg", "image b"}});
  ASSERT_EQ(::utimensat(AT_FDCWD, shard().c_str(), times, 0), 0);
  ASSERT_EQ(labels(), (std::vector<std::int64_t>{1, 0}));
  write_tar(shard(), {{"a.cls", "0"}, {"a.jpg", "image a"}, {"b.cls", "1"}, {"b.jpg", "image b"}});
  ASSERT_EQ(::utimensat(AT_FDCWD, shard().c_str(), times, 0), 0);
  ASSERT_EQ(::chown(index().c_str(), kSomebody, kSomebody), 0);
  EXPECT_EQ(labels(), right_);
  struct stat status {};
  ASSERT_EQ(::stat(index().c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u) << "our file has replaced it";
}

TEST_F(PlantedIndex, ThatIsALinkIsReplacedAndNotWrittenThrough) {
  ASSERT_EQ(labels(), right_);
  const fs::path precious = folder_.put("precious", "mine"), place = index();
  fs::remove(place);
  fs::create_symlink(precious, place);
  fs::create_symlink(precious, place.string() + "." + std::to_string(::getpid()) + ".tmp");
  EXPECT_EQ(labels(), right_);
  EXPECT_EQ(content(precious), "mine");
  EXPECT_FALSE(fs::is_symlink(place));
}

class PlantedCache : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path() const { return folder_.path() / "cache"; }
  [[nodiscard]] Error refusal() const {
    const auto opened = io::CacheFolder::open(path(), 1'000'000);
    return opened ? Error{} : opened.error();
  }
  TempFolder folder_;
};

TEST_F(PlantedCache, FolderIsRefused) {
  fs::create_directory(path());
  ASSERT_EQ(::chmod(path().c_str(), 0777), 0);
  EXPECT_EQ(refusal().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refusal().message, HasSubstr(path().string() + " has mode 0777"));
  fs::rename(path(), folder_.path() / "real");
  ASSERT_EQ(::chmod((folder_.path() / "real").c_str(), 0700), 0);
  fs::create_directory_symlink("real", path());
  EXPECT_THAT(refusal().message, HasSubstr(path().string() + " is a symbolic link"));
  EXPECT_TRUE(fs::is_empty(folder_.path() / "real"));
  fs::remove(path());
  const fs::path precious = folder_.put("precious", "mine");
  fs::create_directory(path());
  fs::create_symlink(precious, path() / "count");
  EXPECT_THAT(refusal().message, HasSubstr("cache/count is a symbolic link"));
  EXPECT_EQ(content(precious), "mine");
}

TEST_F(PlantedCache, FolderThatIsMadeIsForItsUserAlone) {
  const mode_t mask = ::umask(0002);
  const auto folder = io::CacheFolder::open(path(), 1'000'000).value();
  EXPECT_TRUE(folder->add("one/two/sample", std::vector<std::uint8_t>(100, 'x')));
  ::umask(mask);
  for (const char* made : {"", "one", "one/two"}) {
    struct stat status {};
    ASSERT_EQ(::stat((path() / made).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u) << made;
  }
}

TEST_F(PlantedCache, FileOfAnotherUserIsReadAnewAndReplaced) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const auto folder = io::CacheFolder::open(path(), 1'000'000).value();
  const std::vector<std::uint8_t> bytes(100, 'x');
  ASSERT_TRUE(folder->add("sample", bytes));
  std::vector<std::uint8_t> read;
  ASSERT_EQ(folder->read("sample", read), io::CacheFolder::Found::kRead);
  ASSERT_EQ(::chown((path() / "sample").c_str(), kSomebody, kSomebody), 0);
  EXPECT_EQ(folder->read("sample", read), io::CacheFolder::Found::kUnreadable);
  EXPECT_TRUE(folder->replace("sample", bytes));
  EXPECT_EQ(folder->read("sample", read), io::CacheFolder::Found::kRead);
}

TEST(PlantedDatabase, IsNotPackedInto) {
  const TempFolder folder;
  const fs::path out = folder.path() / "out", precious = folder.put("precious", "mine");
  store::Meta meta;
  meta.count = 1;
  const auto why = [&] {
    const auto writer = store::Writer::open(out, meta);
    return writer ? "it was opened" : writer.error().message;
  };
  fs::create_directory(out);
  fs::create_symlink(precious, out / "data.mdb");
  EXPECT_THAT(why(), HasSubstr("data.mdb is a symbolic link"));
  fs::remove(out / "data.mdb");
  ASSERT_EQ(::chmod(out.c_str(), 0777), 0);
  EXPECT_THAT(why(), HasSubstr(out.string() + " has mode 0777"));
  fs::remove(out);
  fs::create_directory(folder.path() / "real");
  fs::create_directory_symlink("real", out);
  EXPECT_THAT(why(), HasSubstr(out.string() + " is a symbolic link"));
  EXPECT_EQ(content(precious), "mine");
  EXPECT_TRUE(fs::is_empty(folder.path() / "real"));
}

}  // namespace
}  // namespace headrace
