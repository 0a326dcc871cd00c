#include "server/source/formats/image_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "server/source/formats/synthetic.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class ImageFolder : public testing::Test {
 protected:
  void put(const fs::path& file, const std::string& content = "image") const { folder_.put(file, content); }
  std::shared_ptr<const Source> open(const ReadPolicy& read = {}) const {
    auto source = open_image_folder(root_, read);
    EXPECT_TRUE(source.has_value()) << source.error().message;
    return source.value_or(nullptr);
  }
  Error refused() const {
    auto source = open_image_folder(root_);
    EXPECT_FALSE(source.has_value());
    return source ? Error{} : source.error();
  }
  TempFolder folder_;
  const fs::path root_ = folder_.path();
};

std::vector<std::string> names(const Source& source) {
  std::vector<std::string> out;
  for (std::uint64_t i = 0; i < source.size(); ++i) out.push_back(source.name(i));
  return out;
}

TEST_F(ImageFolder, TellsHowManyImagesOfOtherKindsItLeavesOut) {
  put("cat/1.jpg");
  put("cat/note.txt");
  put("dog/1.png");
  EXPECT_EQ(open()->warning(), "");
  for (const char* name :
       {"dog/b.webp", "dog/deep/a.TIFF", "cat/z.bmp", "dog/c.pgm", "dog/d.ppm", "dog/e.tif"})
    put(name);
  fs::create_symlink(root_ / "dog/b.webp", root_ / "dog/link.webp");
  const auto source = open();
  EXPECT_EQ(source->size(), 2U);
  EXPECT_THAT(source->warning(), HasSubstr("7 files are left out, for example cat/z.bmp"));
}

TEST_F(ImageFolder, WarnsOfImagesOutsideTheClassFolders) {
  put("cat/1.jpg");
  put("dog/1.jpg");
  put("3.jpg");
  EXPECT_EQ(open()->size(), 2U);
  EXPECT_THAT(open()->warning(),
              HasSubstr("1 image outside the class folders is left out, for example 3.jpg; move it into a"));
  put("2.png");
  EXPECT_THAT(
      open()->warning(),
      HasSubstr("2 images outside the class folders are left out, for example 2.png; move them into a"));
}

TEST_F(ImageFolder, AboveTheClassFoldersNamesThem) {
  put("train2017/cat/1.jpg");
  EXPECT_EQ(open()->class_names().size(), 1U);
  EXPECT_THAT(open()->warning(), HasSubstr("one class only, `train2017`"));
  EXPECT_THAT(open()->warning(), HasSubstr(root_.string() + "/train2017, point `path` at that"));
  put("trams/1.jpg");
  EXPECT_EQ(open()->warning(), "") << "trains may be a class beside others";
  put("Val/cat/2.jpg");
  EXPECT_THAT(open()->warning(), HasSubstr("Val, train2017 look like sets but are read as classes"));
  EXPECT_THAT(open()->warning(), HasSubstr("as in " + root_.string() + "/Val, and give each set a source"));
}

TEST_F(ImageFolder, IndexesClassesAndFilesInTorchvisionsOrder) {
  put("dog/b.PNG");
  put("dog/a.Jpg");
  put("cat/z.jpeg");
  put("cat/a/x.jpg");
  put("cat/a-b/y.jpg");
  put("cat/note.txt");
  put("Zebra/1.jpg");
  put("stray.jpg");
  const auto source = open();
  EXPECT_THAT(source->class_names(), ElementsAre("Zebra", "cat", "dog"));
  // sorted(os.walk(...)): by folder, then by file
  EXPECT_THAT(names(*source), ElementsAre("Zebra/1.jpg", "cat/z.jpeg", "cat/a/x.jpg", "cat/a-b/y.jpg",
                                          "dog/a.Jpg", "dog/b.PNG"));
  EXPECT_EQ(source->label(0), 0);
  EXPECT_EQ(source->label(2), 1);
  EXPECT_EQ(source->label(5), 2);
  EXPECT_EQ(source->whole_index(3), 3U);
}

TEST_F(ImageFolder, ReadsAFileWholeAndReusesTheBuffer) {
  const std::string large(300'000, 'x');
  put("cat/1.jpg", large);
  put("cat/2.jpg", "small");
  const auto source = open();
  Sample out;
  ASSERT_TRUE(source->read(0, out));
  EXPECT_EQ(std::string(out.item(0).bytes.begin(), out.item(0).bytes.end()), large);
  const auto* before = out.item(0).bytes.data();
  ASSERT_TRUE(source->read(1, out));
  EXPECT_EQ(std::string(out.item(0).bytes.begin(), out.item(0).bytes.end()), "small");
  EXPECT_EQ(out.item(0).bytes.data(), before);
}

TEST_F(ImageFolder, FollowsLinksToFoldersAndFiles) {
  put("real/cat/1.jpg");
  fs::create_directories(root_ / "set" / "dog");
  fs::create_directory_symlink(root_ / "real" / "cat", root_ / "set" / "cat");
  fs::create_symlink(root_ / "real" / "cat" / "1.jpg", root_ / "set" / "dog" / "link.jpg");
  const auto source = open_image_folder(root_ / "set");
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_THAT(names(**source), ElementsAre("cat/1.jpg", "dog/link.jpg"));
  Sample out;
  EXPECT_TRUE((*source)->read(1, out));
}

TEST_F(ImageFolder, FingerprintDependsOnPathsSizesAndLabelsButNotOnTimes) {
  put("cat/1.jpg", "abc");
  put("dog/1.jpg", "abc");
  const auto original = open()->fingerprint();
  fs::last_write_time(root_ / "cat/1.jpg", fs::file_time_type{});
  EXPECT_EQ(open()->fingerprint(), original);
  put("cat/1.jpg", "abcd");
  EXPECT_NE(open()->fingerprint(), original);
  put("cat/1.jpg", "abc");
  EXPECT_EQ(open()->fingerprint(), original);
  fs::rename(root_ / "dog/1.jpg", root_ / "dog/2.jpg");
  EXPECT_NE(open()->fingerprint(), original);
}

TEST_F(ImageFolder, RefusesAMissingFolder) {
  const auto source = open_image_folder(root_ / "nowhere");
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(source.error().message, HasSubstr("nowhere: No such file or directory; create or mount it"));
}

TEST_F(ImageFolder, RefusesAFileInsteadOfAFolder) {
  put("file");
  const auto source = open_image_folder(root_ / "file");
  ASSERT_FALSE(source);
  EXPECT_THAT(source.error().message, HasSubstr("must name a folder with one folder per class"));
}

TEST_F(ImageFolder, RefusesAFolderWithoutClasses) {
  put("1.jpg");
  put("2.jpg");
  const auto error = refused();
  EXPECT_EQ(error.code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(error.message,
              HasSubstr("holds 2 images but no class folders; put the images into one folder per class"));
}

TEST_F(ImageFolder, NamesClassesWithoutImages) {
  put("cat/1.jpg");
  put("dog/readme.txt");
  fs::create_directories(root_ / "emu" / "deep");
  const auto error = refused();
  EXPECT_EQ(error.code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(error.message,
              HasSubstr("2 of 3 class folders hold no .jpg, .jpeg or .png: dog, emu; remove them"));
}

TEST_F(ImageFolder, RefusesAnUnreadableFolder) {
  put("cat/1.jpg");
  put("dog/1.jpg");
  fs::permissions(root_ / "dog", fs::perms::none);
  fs::permissions(root_, fs::perms::all);
  // In a child, because root can read everything and must switch to another user first.
  EXPECT_EXIT(
      {
        if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) std::exit(9);
        const auto source = open_image_folder(root_);
        if (source || source.error().code != ErrorCode::kDatasetInvalid) std::exit(8);
        std::fputs(source.error().message.c_str(), stderr);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "dog: Permission denied; give this user the right to read it");
  fs::permissions(root_ / "dog", fs::perms::owner_all);
}

TEST_F(ImageFolder, RefusesADanglingLinkAmongTheImages) {
  put("cat/1.jpg");
  fs::create_symlink("nowhere.jpg", root_ / "cat" / "2.jpg");
  EXPECT_THAT(refused().message, HasSubstr("cat/2.jpg: No such file or directory; remove the link"));
}

TEST_F(ImageFolder, RefusesAFolderThatHoldsItself) {
  put("cat/1.jpg");
  fs::create_directory_symlink("..", root_ / "cat" / "loop");
  EXPECT_THAT(refused().message, HasSubstr("leads back to a folder that holds it"));
}

TEST_F(ImageFolder, RefusesAPipeNamedLikeAnImageInsteadOfHanging) {
  put("cat/1.jpg");
  ASSERT_EQ(::mkfifo((root_ / "cat" / "2.jpg").c_str(), 0600), 0);
  EXPECT_THAT(refused().message, HasSubstr("is not a regular file"));
}

Error read_error(const Source& source) {
  Sample out;
  const auto r = source.read(0, out);
  EXPECT_FALSE(r);
  return r ? Error{} : r.error();
}

TEST_F(ImageFolder, TellsThatAFileVanished) {
  put("cat/1.jpg");
  const auto source = open();
  fs::remove(root_ / "cat/1.jpg");
  const auto error = read_error(*source);
  EXPECT_EQ(error.code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(error.message, HasSubstr("cat/1.jpg: vanished since the dataset was opened"));
}

TEST_F(ImageFolder, TellsThatAFileChangedSize) {
  put("cat/1.jpg", "12345");
  const auto source = open();
  put("cat/1.jpg", "123");
  const auto error = read_error(*source);
  EXPECT_EQ(error.code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(error.message, HasSubstr("has 3 bytes, had 5"));
}

TEST_F(ImageFolder, TellsThatAFileBecameAPipeInsteadOfHanging) {
  put("cat/1.jpg");
  const auto source = open();
  fs::remove(root_ / "cat/1.jpg");
  ASSERT_EQ(::mkfifo((root_ / "cat" / "1.jpg").c_str(), 0600), 0);
  EXPECT_THAT(read_error(*source).message, HasSubstr("is no longer a regular file"));
}

TEST_F(ImageFolder, ReadsAnEmptyFileAsEmptyForTheDecoderToName) {
  put("cat/1.jpg", "");
  Sample encoded;
  const auto source = open();
  ASSERT_TRUE(source->read(0, encoded));
  EXPECT_TRUE(encoded.item(0).bytes.empty());
}

TEST_F(ImageFolder, CallsAFileAboveTheLimitABadSampleWithoutReadingIt) {
  put("cat/1.jpg", "12345");
  std::atomic<int> reads = 0;
  ReadPolicy policy;
  policy.max_bytes = 4;
  policy.pread = [&](int, void*, std::size_t, off_t) -> ssize_t { return ++reads, 0; };
  const auto error = read_error(*open(policy));
  EXPECT_EQ(error.code, ErrorCode::kBadSample);
  EXPECT_THAT(error.message, HasSubstr("has 5 bytes, more than the limit of 4"));
  EXPECT_EQ(reads, 0);
}

TEST_F(ImageFolder, PutsShortReadsAndInterruptionsTogether) {
  put("cat/1.jpg", "0123456789");
  int calls = 0;
  ReadPolicy policy;
  policy.pread = [&](int fd, void* to, std::size_t n, off_t at) -> ssize_t {
    if (++calls % 2 == 1) return errno = EINTR, -1;
    return ::pread(fd, to, std::min<std::size_t>(n, 3), at);
  };
  Sample out;
  ASSERT_TRUE(open(policy)->read(0, out));
  EXPECT_EQ(std::string(out.item(0).bytes.begin(), out.item(0).bytes.end()), "0123456789");
  EXPECT_EQ(calls, 8);
}

TEST_F(ImageFolder, RetriesATransientErrorAndSucceeds) {
  put("cat/1.jpg", "hello");
  int failures = 3;
  ReadPolicy policy;
  policy.backoff = std::chrono::milliseconds(1);
  policy.pread = [&](int fd, void* to, std::size_t n, off_t at) -> ssize_t {
    if (failures-- > 0) return errno = EIO, -1;
    return ::pread(fd, to, n, at);
  };
  Sample out;
  ASSERT_TRUE(open(policy)->read(0, out));
  EXPECT_EQ(std::string(out.item(0).bytes.begin(), out.item(0).bytes.end()), "hello");
}

TEST_F(ImageFolder, GivesUpAfterItsAttemptsAndNamesTheError) {
  put("cat/1.jpg", "hello");
  int calls = 0;
  ReadPolicy policy;
  policy.backoff = std::chrono::milliseconds(1);
  policy.pread = [&](int, void*, std::size_t, off_t) -> ssize_t { return ++calls, errno = EIO, -1; };
  const auto error = read_error(*open(policy));
  EXPECT_EQ(error.code, ErrorCode::kTransientIo);
  EXPECT_EQ(calls, 4);
  EXPECT_THAT(error.message,
              HasSubstr("cat/1.jpg: cannot be read at byte 0: Input/output error (after 4 attempts)"));
}

TEST_F(ImageFolder, SaysWhatToDoAboutAFileThatCannotBeRead) {
  put("cat/1.jpg", "hello");
  for (const auto& [number, what] : std::vector<std::pair<int, std::string>>{
           {EACCES, "Permission denied; give this user the right to read it"},
           {EISDIR, "Is a directory; replace it with a regular file, or remove it from the dataset"},
           {EMFILE, "Too many open files (after 4 attempts); raise the limit (ulimit -n, memory)"},
           {EIO, "Input/output error (after 4 attempts); check its disk or mount"}}) {
    ReadPolicy policy;
    policy.backoff = std::chrono::milliseconds(1);
    policy.pread = [number = number](int, void*, std::size_t, off_t) -> ssize_t {
      return errno = number, -1;
    };
    EXPECT_THAT(read_error(*open(policy)).message, HasSubstr("cat/1.jpg: cannot be read at byte 0: " + what));
  }
  const auto source = open();
  fs::remove(root_ / "cat/1.jpg");
  fs::create_symlink("1.jpg", root_ / "cat/1.jpg");
  EXPECT_THAT(
      read_error(*source).message,
      HasSubstr("cat/1.jpg: cannot be opened: Too many levels of symbolic links; replace it with a regular"));
}

TEST_F(ImageFolder, TellsThatAFileWasCutWhileItWasRead) {
  put("cat/1.jpg", "hello");
  ReadPolicy policy;
  policy.pread = [&](int fd, void* to, std::size_t, off_t at) -> ssize_t {
    return at >= 2 ? 0 : ::pread(fd, to, 2, at);
  };
  const auto error = read_error(*open(policy));
  EXPECT_EQ(error.code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(error.message, HasSubstr("ended at byte 2 of 5"));
}

TEST_F(ImageFolder, HoldsOneDescriptorForAllFiles) {
  for (int i = 0; i < 50; ++i) put("cat/" + std::to_string(i) + ".jpg");
  const auto descriptors = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = descriptors();
  {
    const auto source = open();
    Sample out;
    for (std::uint64_t i = 0; i < source->size(); ++i) ASSERT_TRUE(source->read(i, out));
    EXPECT_EQ(descriptors(), before + 1);
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(Synthetic, GivesEachSampleItsNumberThenZeros) {
  const auto source = make_synthetic(1000, 10);
  ASSERT_TRUE(source);
  EXPECT_EQ((*source)->size(), 1000U);
  Sample out;
  out.item(0).storage.assign(12, 9);
  ASSERT_TRUE((*source)->read(258, out));
  EXPECT_THAT(out.item(0).bytes, ElementsAre(2, 1, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ((*source)->label(258), 0);
  EXPECT_NE((*source)->fingerprint(), (*make_synthetic(1000, 11))->fingerprint());
}

TEST(Synthetic, FillsRowsShorterThanItsNumber) {
  std::array<std::byte, 2> row{std::byte{9}, std::byte{9}};
  fill_synthetic(0x010203, row);
  EXPECT_EQ(row[0], std::byte{3});
  EXPECT_EQ(row[1], std::byte{2});
}

TEST(Synthetic, RefusesNothing) {
  EXPECT_EQ(make_synthetic(0, 1).error().code, ErrorCode::kConfigInvalid);
  EXPECT_EQ(make_synthetic(1, 0).error().code, ErrorCode::kConfigInvalid);
}

}  // namespace
}  // namespace headrace::server::source
