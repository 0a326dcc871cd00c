// Tar files whose headers contradict themselves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "clientlib/base/unique_fd.h"
#include "server/source/shards/tar_reader.h"
#include "tests/temp_folder.h"
#include "tests/unit/tar_shards.h"

namespace headrace::server::source {
namespace {

using testing::HasSubstr;

constexpr std::size_t kSparse = 386, kNumber = 12, kRealSize = 483;  // in GNU tar's header

/// A tar file with one member that is not sparse by its type, with these numbers in its GNU header.
std::string with_numbers(const TempFolder& folder, const std::map<std::size_t, std::string>& numbers) {
  write_tar(folder.path() / "x.tar", {{"a.cls", "7"}}, TarFormat::kGnu);
  std::ifstream file(folder.path() / "x.tar", std::ios::binary);
  std::string tar{std::istreambuf_iterator<char>(file), {}};
  constexpr std::size_t kSum = 148, kSumBytes = 8;
  for (const auto& [at, number] : numbers) number.copy(tar.data() + at, kNumber);
  std::memset(tar.data() + kSum, ' ', kSumBytes);
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[i]);
  std::snprintf(tar.data() + kSum, kSumBytes, "%06o", sum);
  return tar;
}

TEST(HostileTar, WithAHoleInAMemberThatIsNotSparseIsRefused) {
  const TempFolder folder;
  for (const char* offset : {"00000000005", "77777777777"}) {  // the second: 8 GiB of zeros
    const std::string tar = with_numbers(folder, {{kSparse, offset}, {kSparse + kNumber, "00000000001"}});
    const UniqueFd fd(::open(folder.put("y.tar", tar).c_str(), O_RDONLY | O_CLOEXEC));
    auto reader = TarReader::open(fd.get(), tar.size(), "y.tar").value();
    TarMember member;
    ASSERT_TRUE(reader.next(member).value());
    EXPECT_EQ(member.bytes, 1U);
    const auto content = reader.content();
    ASSERT_FALSE(content);
    EXPECT_EQ(content.error().code, ErrorCode::kDatasetInvalid);
    EXPECT_THAT(content.error().message, HasSubstr("y.tar: has a damaged header at byte 0"));
  }
}

TEST(HostileTar, WithTheSizeOfASparseMemberInOneThatIsNotIsRefused) {
  const TempFolder folder;
  const std::string tar = with_numbers(folder, {{kRealSize, "00000000643"}});
  const UniqueFd fd(::open(folder.put("y.tar", tar).c_str(), O_RDONLY | O_CLOEXEC));
  auto reader = TarReader::open(fd.get(), tar.size(), "y.tar").value();
  TarMember member;
  const auto next = reader.next(member);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(next.error().message, HasSubstr("\"a.cls\" is a sparse member"));
}

}  // namespace
}  // namespace headrace::server::source
