// Datasets with so many files that opening them does not request each file.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "clientlib/ring/unique_fd.h"
#include "server/source/files/listed_files.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/manifest.h"
#include "server/source/size_sample.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kOneMore = SizeSample::kMost + 1;  // all but the last one are in the sample

TEST(SizeSampleTest, HasEveryRowOfASmallSet) {
  for (const std::uint64_t rows : {std::uint64_t{1}, std::uint64_t{1000}, SizeSample::kMost}) {
    const SizeSample sample(rows);
    ASSERT_EQ(sample.size(), rows);
    for (std::uint64_t row = 0; row < rows; ++row) ASSERT_EQ(sample.index_of(row), row);
  }
}

TEST(SizeSampleTest, IsSpreadEvenlyOverALargeSet) {
  for (const std::uint64_t rows : {kOneMore, std::uint64_t{100'000}, std::uint64_t{10'000'000}, 1UL << 46}) {
    const SizeSample sample(rows);
    ASSERT_EQ(sample.size(), SizeSample::kMost);
    const std::uint64_t step = rows / SizeSample::kMost;
    std::uint64_t next = 0;  // the first row that may come
    for (std::uint64_t place = 0; place < sample.size(); ++place) {
      const std::uint64_t row = sample.row(place);
      ASSERT_GE(row, next);
      ASSERT_LE(row, next + 1);
      ASSERT_EQ(sample.index_of(row), place);
      if (step > 1) {
        ASSERT_EQ(sample.index_of(row + 1), std::nullopt);
      }
      next = row + step;
    }
    ASSERT_LE(next, rows + 1);
  }
}

class NotListed : public testing::Test {
 protected:
  NotListed() {
    for (int i = 0; i < 20; ++i) folder_.put("cat/" + std::to_string(i) + ".jpg", "");
    root_.reset(::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  /// Passes all twenty files of `folder`, then `more`. Returns the files of `more` that are still unknown.
  std::vector<std::string> left(const std::string& folder, const std::vector<std::string>& more) const {
    std::vector<std::string> paths;
    for (int i = 0; i < 20; ++i) paths.push_back(folder + std::to_string(i) + ".jpg");
    paths.insert(paths.end(), more.begin(), more.end());
    std::vector<std::string> out;
    const auto path = [&](std::uint64_t i) -> std::string_view { return paths[i]; };
    for (const std::uint64_t row : not_listed(root_.get(), paths.size(), path)) out.push_back(paths[row]);
    return out;
  }
  TempFolder folder_;
  ring::UniqueFd root_;
};

TEST_F(NotListed, LeavesWhatIsNotThere) {
  EXPECT_THAT(left("cat/", {"cat/20.jpg", "dog/1.jpg", "1.jpg", "cat/", "cat/1.JPG", "cat", ""}),
              ElementsAre("cat/20.jpg", "dog/1.jpg", "1.jpg", "cat/", "cat/1.JPG", "cat", ""));
}

TEST_F(NotListed, FindsAFileForEverySpellingOfItsFolder) {
  fs::create_directory_symlink("cat", folder_.path() / "link");
  for (const std::string& folder :
       {std::string("cat/"), std::string("./cat//"), std::string("cat/../cat/"), std::string("link/"),
        (folder_.path() / "cat/").string(), "../" + folder_.path().filename().string() + "/cat/"})
    EXPECT_THAT(left(folder, {folder + "20.jpg"}), ElementsAre(folder + "20.jpg")) << folder;
}

TEST_F(NotListed, FindsFilesOfTheRootItself) {
  for (int i = 0; i < 20; ++i) folder_.put(std::to_string(i) + ".jpg", "");
  EXPECT_THAT(left("", {"20.jpg"}), ElementsAre("20.jpg"));
}

TEST_F(NotListed, LeavesLinksFoldersAndPipesToBeLookedAt) {
  fs::create_symlink("1.jpg", folder_.path() / "cat/link.jpg");
  fs::create_symlink("nowhere.jpg", folder_.path() / "cat/nothing.jpg");
  fs::create_directory(folder_.path() / "cat/deep.jpg");
  ASSERT_EQ(::mkfifo((folder_.path() / "cat/pipe.jpg").c_str(), 0600), 0);
  const std::vector<std::string> odd{"cat/link.jpg", "cat/nothing.jpg", "cat/deep.jpg", "cat/pipe.jpg"};
  EXPECT_EQ(left("cat/", odd), odd);
}

TEST_F(NotListed, ListsNoFolderOfWhichFewAreWantedOrFarTooManyAreThere) {
  folder_.put("dog/1.jpg", "");
  EXPECT_THAT(left("cat/", {"dog/1.jpg"}), ElementsAre("dog/1.jpg"));
  for (int i = 0; i < 100; ++i) folder_.put("cat/other" + std::to_string(i), "");
  EXPECT_EQ(left("cat/", {}).size(), 20U);
}

TEST_F(NotListed, LeavesAllOfAFolderThatCannotBeListedOrEntered) {
  fs::permissions(folder_.path(), fs::perms::all);
  for (const auto perms : {fs::perms::none, fs::perms::owner_exec | fs::perms::others_exec,
                           fs::perms::owner_read | fs::perms::others_read}) {
    fs::permissions(folder_.path() / "cat", perms);
    // In a child, because root can read everything and must switch to another user first.
    EXPECT_EXIT(
        {
          if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) std::exit(9);
          std::exit(left("cat/", {}).size() == 20 ? 0 : 8);
        },
        testing::ExitedWithCode(0), "");
  }
  fs::permissions(folder_.path() / "cat", fs::perms::owner_all);
}

/// A class folder with one file more than the sample has room for: that one is b/last.jpg.
class LargeFolder : public testing::Test {
 protected:
  LargeFolder() {
    fs::create_directories(folder_.path() / "a");
    for (std::uint64_t i = 0; i < kOneMore - 2; ++i) {
      if (i % kLinks == 0) source_ = folder_.put("source" + std::to_string(i), "image");
      fs::create_hard_link(source_, folder_.path() / "a" / (std::to_string(i) + ".jpg"));
    }
    folder_.put("b/first.jpg", "one");
    folder_.put("b/last.jpg", "two");
  }
  std::shared_ptr<const Source> open() const {
    auto source = open_image_folder(folder_.path());
    EXPECT_TRUE(source) << source.error().message;
    return source.value_or(nullptr);
  }
  static constexpr std::uint64_t kLinks = 30'000;  // file systems allow at most about 65,000 links to a file
  TempFolder folder_;
  fs::path source_;
};

TEST_F(LargeFolder, KnowsTheSizesOfItsSampleAndReadsTheOthersAsTheyAre) {
  const auto source = open();
  ASSERT_EQ(source->size(), kOneMore);
  ASSERT_EQ(source->name(kOneMore - 1), "b/last.jpg");
  const auto original = source->fingerprint();
  Sample out;

  folder_.put("b/last.jpg", "longer");
  ASSERT_TRUE(source->read(kOneMore - 1, out));
  EXPECT_EQ(std::string(out.item(0).bytes.begin(), out.item(0).bytes.end()), "longer");
  EXPECT_EQ(open()->fingerprint(), original);
  fs::remove(folder_.path() / "b/last.jpg");
  EXPECT_THAT(source->read(kOneMore - 1, out).error().message,
              HasSubstr("b/last.jpg: vanished since the dataset was opened"));
  folder_.put("b/last.jpg", "two");
  EXPECT_EQ(open()->fingerprint(), original);

  folder_.put("b/first.jpg", "longer");
  EXPECT_THAT(source->read(kOneMore - 2, out).error().message, HasSubstr("has 6 bytes, had 3"));
  EXPECT_NE(open()->fingerprint(), original);
  folder_.put("b/first.jpg", "one");
  EXPECT_EQ(open()->fingerprint(), original);

  fs::rename(folder_.path() / "b/last.jpg", folder_.path() / "b/later.jpg");
  EXPECT_NE(open()->fingerprint(), original);
}

/// Lists a few files so often that there are more rows than the sample has room for.
class LargeManifest : public testing::Test {
 protected:
  LargeManifest() {
    for (int i = 0; i < 10; ++i) folder_.put("cat/" + std::to_string(i) + ".jpg", "image");
  }
  Result<std::shared_ptr<const Source>> open(const std::vector<std::string>& last) const {
    const fs::path file = folder_.path() / "set.csv";
    {
      std::ofstream out(file);
      out << "path,label\n";
      for (std::uint64_t i = 0; i < kOneMore; ++i) out << "cat/" << i % 10 << ".jpg,0\n";
      for (const std::string& path : last) out << path << ",1\n";
    }
    return open_manifest({.path = file, .root = {}, .fields = {}});
  }
  static std::string line(std::uint64_t of_last) {
    return "set.csv:" + std::to_string(kOneMore + 2 + of_last) + ": column `path`: ";
  }
  TempFolder folder_;
};

TEST_F(LargeManifest, TakesEveryPathThatLeadsToAFile) {
  folder_.put("dog/1.jpg", "image");
  fs::create_symlink("../dog/1.jpg", folder_.path() / "cat/link.jpg");
  fs::create_directory_symlink("cat", folder_.path() / "kitten");
  const auto source = open({"cat/link.jpg", "kitten/1.jpg", "dog/../cat/2.jpg", "./cat//3.jpg", "dog/1.jpg",
                            (folder_.path() / "cat/4.jpg").string()});
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ((*source)->size(), kOneMore + 6);
  Sample out;
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE((*source)->read(kOneMore + i, out));
    EXPECT_EQ(out.item(0).bytes.size(), 5U);
  }
}

TEST_F(LargeManifest, NamesTheLineOfEveryPathThatDoesNot) {
  fs::create_symlink("nowhere.jpg", folder_.path() / "cat/link.jpg");
  const auto source = open({"cat/10.jpg", "cat/1.JPG", "dog/1.jpg", "cat", "cat/link.jpg", "cat/1.jpg/",
                            "dog/../cat/1.jpg", "/nowhere/1.jpg", "cat/1.jpg"});
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::kDatasetInvalid);
  const std::vector<std::pair<std::string, const char*>> told{
      {"cat/10.jpg", "No such file or directory"},       {"cat/1.JPG", "No such file or directory"},
      {"dog/1.jpg", "No such file or directory"},        {"cat", "is not a regular file"},
      {"cat/link.jpg", "No such file or directory"},     {"cat/1.jpg/", "Not a directory"},
      {"dog/../cat/1.jpg", "No such file or directory"}, {"/nowhere/1.jpg", "No such file or directory"}};
  for (std::size_t i = 0; i < told.size(); ++i)
    EXPECT_THAT(source.error().message,
                HasSubstr(fmt::format("{}{}: {}", line(i), (folder_.path() / told[i].first).string(),
                                      told[i].second)));
  EXPECT_THAT(source.error().message, Not(HasSubstr(line(8))));
}

TEST(ManifestRows, CountsTheEmptyLinesOfACsv) {
  const TempFolder folder;
  const auto file = folder.put("set.csv", "path\n\n\r\nnothing.jpg\n");
  const auto source = open_manifest({.path = file, .root = {}, .fields = {}});
  ASSERT_FALSE(source);
  EXPECT_THAT(source.error().message, HasSubstr("set.csv:4: column `path`"));
}

}  // namespace
}  // namespace headrace::server::source
