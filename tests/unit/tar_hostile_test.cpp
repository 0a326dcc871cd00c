// Tar files whose headers contradict themselves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "clientlib/base/unique_fd.h"
#include "server/source/shards/tar_reader.h"
#include "tests/temp_folder.h"
#include "tests/unit/tar_shards.h"

namespace headrace::server::source {
namespace {

using testing::HasSubstr;

/// A tar file with one member, in whose GNU header a part of the member is at `offset`, although it is not
/// sparse by its type.
std::string with_hole(const TempFolder& folder, const std::string& offset) {
  write_tar(folder.path() / "x.tar", {{"a.cls", "7"}}, TarFormat::kGnu);
  std::ifstream file(folder.path() / "x.tar", std::ios::binary);
  std::string tar{std::istreambuf_iterator<char>(file), {}};
  constexpr std::size_t kSum = 148, kSumBytes = 8, kSparse = 386, kNumber = 12;
  offset.copy(tar.data() + kSparse, kNumber);
  std::string("00000000001").copy(tar.data() + kSparse + kNumber, kNumber);
  std::memset(tar.data() + kSum, ' ', kSumBytes);
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[i]);
  std::snprintf(tar.data() + kSum, kSumBytes, "%06o", sum);
  return tar;
}

TEST(HostileTar, WithAHoleInAMemberThatIsNotSparseIsRefused) {
  const TempFolder folder;
  for (const char* offset : {"00000000005", "77777777777"}) {  // the second: 8 GiB of zeros
    const std::string tar = with_hole(folder, offset);
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

}  // namespace
}  // namespace headrace::server::source
