// Trust in the process at the other end of a socket, and in the owner of a file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "clientlib/base/default_directory.h"
#include "clientlib/base/new_file.h"
#include "clientlib/base/peer.h"
#include "clientlib/base/trusted_path.h"
#include "tests/temp_folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint32_t kOtherUser = 54321;

class Trust : public testing::Test {
 protected:
  [[nodiscard]] fs::path folder(mode_t mode) const {
    fs::path path = folder_.path() / "folder";
    fs::create_directory(path);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  [[nodiscard]] std::string content(const char* name) const {
    std::ifstream file(folder_.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string why(const Result<UniqueFd>& refused, ErrorCode code = ErrorCode::kPermissionDenied) {
    if (refused) return "it was opened";
    EXPECT_EQ(refused.error().code, code);
    return refused.error().message;
  }

  TempFolder folder_;
};

TEST_F(Trust, ADirectoryThatOnlyItsOwnerWritesToIsTrusted) {
  for (const mode_t mode : {0700, 0711, 0755, 0500}) {
    const auto fd = open_trusted_directory(folder(mode));
    ASSERT_TRUE(fd) << fd.error().message;
  }
}

TEST_F(Trust, ADirectoryThatOthersCanWriteToIsNotTrusted) {
  for (const mode_t mode : {0777, 01777, 0770, 0702}) {
    const std::string message = why(open_trusted_directory(folder(mode)));
    char octal[8];
    std::snprintf(octal, sizeof octal, "%04o", mode);
    EXPECT_THAT(message, HasSubstr((folder_.path() / "folder").string() + " has mode " + octal));
  }
}

TEST_F(Trust, ALinkIsNotFollowedEvenWithATrailingSlash) {
  fs::create_directory_symlink(folder(0700), folder_.path() / "link");
  for (const char* name : {"link", "link/", "link//"})
    EXPECT_THAT(why(open_trusted_directory((folder_.path() / name).string())),
                HasSubstr("is a symbolic link"));
}

TEST_F(Trust, AMissingPathOrAFileIsAnEnvironmentError) {
  folder_.put("file", "");
  EXPECT_THAT(why(open_trusted_directory(folder_.path() / "none"), ErrorCode::kEnvironment),
              HasSubstr("No such file"));
  EXPECT_THAT(why(open_trusted_directory(folder_.path() / "file"), ErrorCode::kEnvironment),
              HasSubstr("Not a directory"));
}

TEST_F(Trust, AnotherUsersDirectoryIsTrustedIfThatUserIsAllowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can change a file's owner";
  const fs::path path = folder(0755);
  ASSERT_EQ(::chown(path.c_str(), kOtherUser, kOtherUser), 0);
  EXPECT_THAT(why(open_trusted_directory(path)),
              HasSubstr("belongs to user 54321 (mode 0755), expected user 0"));
  EXPECT_TRUE(open_trusted_directory(path, {1, kOtherUser}));
}

TEST_F(Trust, AFileMustBeRegularAndHaveOneHardLinkIfItIsWritten) {
  const std::string file = folder_.put("file", "x").string();
  EXPECT_TRUE(open_trusted_file(AT_FDCWD, file, O_RDWR));
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  EXPECT_THAT(why(open_trusted_file(AT_FDCWD, file, O_RDONLY)), HasSubstr("has mode 0666"));
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  const std::string link = (folder_.path() / "link").string();
  fs::create_symlink(file, link);
  EXPECT_THAT(why(open_trusted_file(AT_FDCWD, link, O_RDWR | O_CREAT)), HasSubstr("is a symbolic link"));
  fs::create_hard_link(file, folder_.path() / "other");
  EXPECT_THAT(why(open_trusted_file(AT_FDCWD, file, O_RDWR)), HasSubstr("has 2 hard links, expected 1"));
  EXPECT_TRUE(open_trusted_file(AT_FDCWD, file, O_RDONLY));
  const std::string pipe = (folder_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(why(open_trusted_file(AT_FDCWD, pipe, O_RDONLY)), HasSubstr("is not a regular file"));
}

TEST_F(Trust, ANewFileReplacesALinkAndNotItsTarget) {
  const fs::path precious = folder_.put("precious", "mine");
  fs::create_symlink(precious, folder_.path() / "name");
  const UniqueFd directory(::open(folder_.path().c_str(), O_PATH));
  auto file = NewFile::create(directory.get(), "name");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->write("new", 3), 0);
  EXPECT_EQ(file->add(), EEXIST);
  EXPECT_EQ(file->replace(), 0);
  EXPECT_EQ(content("precious"), "mine");
  EXPECT_EQ(content("name"), "new");
  EXPECT_FALSE(fs::is_symlink(folder_.path() / "name"));
}

TEST_F(Trust, ANewFileThatIsNeverLinkedDisappears) {
  const UniqueFd directory(::open(folder_.path().c_str(), O_PATH));
  {
    auto first = NewFile::create(directory.get(), "name"), second = NewFile::create(directory.get(), "name");
    ASSERT_TRUE(first);
    ASSERT_TRUE(second) << "each has a separate file";
    EXPECT_EQ(first->write("first", 5), 0);
    EXPECT_EQ(first->add(), 0);
  }
  EXPECT_EQ(content("name"), "first");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1);
}

TEST(Peers, OfThisUserRootAndAllowedUsersAreTrusted) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd one(ends[0]), other(ends[1]);
  const auto peer = check_peer(one.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::geteuid());
  EXPECT_EQ(check_peer(-1).error().code, ErrorCode::kPermissionDenied);
  EXPECT_TRUE(is_trusted_user(0));
  EXPECT_TRUE(is_trusted_user(::geteuid()));
  EXPECT_FALSE(is_trusted_user(kOtherUser, {1, 2}));
  EXPECT_TRUE(is_trusted_user(kOtherUser, {1, kOtherUser}));
}

TEST(Peers, UserIdIsParsedFromZeroMqsPeerAddress) {
  EXPECT_EQ(uid_of_peer_address("localhost:1000:100:77"), 1000u);
  EXPECT_EQ(uid_of_peer_address(":4294967295:0:1"), 4294967295u);
  EXPECT_EQ(uid_of_peer_address("/a:path:0:1:2"), 0u);
  for (const char* wrong :
       {"", "localhost", "1:2:3", "x:-1:2:3", "x:1:2:", "x:1::3", "x:4294967296:1:1", "x: 1:2:3"})
    EXPECT_FALSE(uid_of_peer_address(wrong)) << wrong;
  EXPECT_FALSE(uid_of_peer_address(nullptr));
}

TEST(Peers, UserIdIsParsedWithTheLocalesDigitGrouping) {
  EXPECT_EQ(uid_of_peer_address("/a:path:54,321:1,000:12,345"), 54321u);
  EXPECT_EQ(uid_of_peer_address("/a:path:54'321:1'000:12'345"), 54321u);
  EXPECT_EQ(uid_of_peer_address(":4.294.967.295:0:1"), 4294967295u);
  for (const char* wrong : {"x:,1:2:3", "x:1,:2:3", "x:1,,1:2:3", "x:,:2:3", "x:4,294,967,296:1:1"})
    EXPECT_FALSE(uid_of_peer_address(wrong)) << wrong;
}

TEST_F(Trust, ARuntimeDirectoryOfAnotherUserOrWritableByAllIsIgnored) {
  const std::string fallback = "/tmp/headrace-" + std::to_string(::geteuid());
  EXPECT_EQ(default_directory(folder(0700).string()), (folder_.path() / "folder/headrace").string());
  EXPECT_EQ(default_directory(folder(0777).string()), fallback);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can change a file's owner";
  ASSERT_EQ(::chown(folder(0700).c_str(), kOtherUser, kOtherUser), 0);
  EXPECT_EQ(default_directory((folder_.path() / "folder").string()), fallback);
}

}  // namespace
}  // namespace headrace
