// The server's directory is created with mode 0700.
#include "server/session/directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/temp_folder.h"

namespace headrace::server::session {
namespace {

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

}  // namespace
}  // namespace headrace::server::session
