// WebDataset shards for tests, written by libarchive.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/source/files/archive.h"

namespace headrace {

struct TestMember {
  std::string name;
  std::string content;
  std::string hardlink = {};  ///< to that member instead of content
};

enum class TarFormat { kUstar, kGnu, kPax };

inline void write_tar(const std::filesystem::path& path, const std::vector<TestMember>& members,
                      TarFormat format = TarFormat::kUstar, bool gzip = false) {
  const server::source::Utf8Names names;
  ::archive* tar = ::archive_write_new();
  if (format == TarFormat::kUstar) ::archive_write_set_format_ustar(tar);
  if (format == TarFormat::kGnu) ::archive_write_set_format_gnutar(tar);
  if (format == TarFormat::kPax) ::archive_write_set_format_pax(tar);
  if (gzip) ::archive_write_add_filter_gzip(tar);
  ASSERT_EQ(::archive_write_open_filename(tar, path.c_str()), ARCHIVE_OK);
  for (const TestMember& member : members) {
    ::archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, member.name.c_str());
    ::archive_entry_set_filetype(entry, member.name.ends_with('/') ? AE_IFDIR : AE_IFREG);
    ::archive_entry_set_perm(entry, 0644);
    if (!member.hardlink.empty()) ::archive_entry_set_hardlink(entry, member.hardlink.c_str());
    ::archive_entry_set_size(entry, static_cast<la_int64_t>(member.content.size()));
    EXPECT_EQ(::archive_write_header(tar, entry), ARCHIVE_OK) << ::archive_error_string(tar);
    ::archive_write_data(tar, member.content.data(), member.content.size());
    ::archive_entry_free(entry);
  }
  EXPECT_EQ(::archive_write_free(tar), ARCHIVE_OK);
}

}  // namespace headrace
