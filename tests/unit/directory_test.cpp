// The server's directory: its mode, and that check() refuses what claim() would refuse.
#include "server/session/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "tests/temp_folder.h"

namespace headrace::server::session {
namespace {

using testing::HasSubstr;

constexpr uid_t kSomebody = 65534;

/// What `act` returns in a process of an ordinary user. REQUIRES: root.
std::string as_somebody(const std::function<std::string()>& act) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresgid(kSomebody, kSomebody, kSomebody) != 0 ||
        ::setresuid(kSomebody, kSomebody, kSomebody) != 0)
      ::_exit(1);
    const std::string text = act();
    ::_exit(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  char text[4096];
  std::string out;
  for (ssize_t got = 0; (got = ::read(ends[0], text, sizeof text)) > 0;)
    out.append(text, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? out : "the child failed";
}

std::string refusal(const Result<void>& checked) {
  return checked ? "accepted" : checked.error().message;
}

std::string refusal(const Result<Directory>& claimed) {
  return claimed ? "accepted" : claimed.error().message;
}

void make(const std::filesystem::path& path, mode_t mode, uid_t owner) {
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0) << path;
  ASSERT_EQ(::chown(path.c_str(), owner, owner), 0) << path;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0) << path;
}

TEST(Directory, HasMode0700WhateverThePathEndsWith) {
  const TempFolder folder;
  const mode_t mask = ::umask(0002);
  for (const char* name : {"plain", "slash/", "slashes//", "dot/."}) {
    const auto path = folder.path() / name;
    const auto directory = Directory::claim(path, Reach::kOwner);
    EXPECT_TRUE(directory) << directory.error().message;
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700U) << name;
  }
  ::umask(mask);
}

TEST(DirectoryCheck, AcceptsWhatClaimAcceptsAndChangesNothing) {
  const TempFolder folder;
  const auto path = folder.path() / "new" / "run";
  EXPECT_EQ(refusal(Directory::check(path)), "accepted");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const auto directory = Directory::claim(path, Reach::kOwner);
  ASSERT_TRUE(directory);
  EXPECT_EQ(refusal(Directory::check(path)), "accepted") << "with a lock, and while a server runs";
}

TEST(DirectoryCheck, RefusesADirectoryBelowADanglingLink) {
  const TempFolder folder;
  std::filesystem::create_symlink("nowhere", folder.path() / "link");
  const auto path = folder.path() / "link" / "deep" / "run";
  EXPECT_THAT(refusal(Directory::check(path)),
              HasSubstr((folder.path() / "link").string() + ": No such file"));
  EXPECT_NE(refusal(Directory::claim(path, Reach::kOwner)), "accepted");
}

TEST(DirectoryCheck, RefusesALockThatIsALink) {
  const TempFolder folder;
  make(folder.path() / "run", 0700, ::geteuid());
  std::filesystem::create_symlink(folder.put("precious", "mine"), folder.path() / "run" / "lock");
  EXPECT_THAT(refusal(Directory::check(folder.path() / "run")), HasSubstr("lock is a symbolic link"));
}

TEST(DirectoryCheck, RefusesADirectoryThatItsOwnerCannotWriteTo) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const auto path = folder.path() / "run";
  make(path, 0555, kSomebody);
  const auto checked = [&] { return refusal(Directory::check(path)); };
  const auto claimed = [&] { return refusal(Directory::claim(path, Reach::kOwner)); };
  EXPECT_THAT(as_somebody(checked), HasSubstr("Permission denied; set server.directory to a folder"));
  EXPECT_NE(as_somebody(claimed), "accepted");
}

TEST(DirectoryCheck, RefusesTheLockOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const auto path = folder.path() / "run";
  make(path, 0700, kSomebody);
  const auto lock = folder.put("run/lock", "1");
  ASSERT_EQ(::chmod(lock.c_str(), 0600), 0);
  const auto checked = [&] { return refusal(Directory::check(path)); };
  const auto claimed = [&] { return refusal(Directory::claim(path, Reach::kOwner)); };
  EXPECT_THAT(as_somebody(checked), HasSubstr("lock: Permission denied; remove that file"));
  EXPECT_NE(as_somebody(claimed), "accepted");
}

TEST(DirectoryCheck, RefusesAFolderInWhichTheUserCanMakeNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const auto path = folder.path() / "new" / "run";
  EXPECT_THAT(as_somebody([&] { return refusal(Directory::check(path)); }),
              HasSubstr(folder.path().string() + ": Permission denied"));
}

}  // namespace
}  // namespace headrace::server::session
