#include "server/mapped/watched_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "tests/temp_folder.h"

namespace headrace::server::mapped {
namespace {

namespace bip = boost::interprocess;
namespace fs = std::filesystem;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 16;

/// A file of ones, mapped.
struct OnesFile {
  explicit OnesFile(const std::filesystem::path& where) : path(where) {
    std::ofstream(path, std::ios::binary) << std::string(kPages * kPage, '\1');
    file = bip::file_mapping(path.c_str(), bip::read_only);
    region = bip::mapped_region(file, bip::read_only);
  }
  [[nodiscard]] std::span<const std::uint8_t> bytes() const {
    return {static_cast<const std::uint8_t*>(region.get_address()), region.get_size()};
  }
  [[nodiscard]] std::unique_ptr<WatchedMap> watch() const {
    return std::make_unique<WatchedMap>(bytes(), file.get_mapping_handle().handle, path.string());
  }
  void cut(std::size_t pages, std::size_t more = 0) const {
    std::filesystem::resize_file(path, pages * kPage + more);
  }

  std::filesystem::path path;
  bip::file_mapping file;
  bip::mapped_region region;
};

bool all_are(std::span<const std::uint8_t> bytes, std::uint8_t value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::uint8_t byte) { return byte == value; });
}

/// Pages that the file does not have any more: zeros, but for LMDB's header of a page without entries.
bool all_lost(std::span<const std::uint8_t> pages) {
  for (std::size_t at = 0; at < pages.size(); at += kPage) {
    const auto header = pages.subspan(at, 16);
    const bool empty = header[12] == 16 && header[14] == 16 && all_are(header.first(12), 0);
    if (!empty || !all_are(pages.subspan(at + 16, kPage - 16), 0)) return false;
  }
  return true;
}

TEST(WatchedMap, FindsOnlyEmptyPagesBehindTheCutAndNamesFileAndByte) {
  const TempFolder folder;
  const OnesFile file(folder.path() / "ones"), other(folder.path() / "other");
  const auto map = file.watch(), whole = other.watch();
  EXPECT_TRUE(all_are(map->bytes(), 1));
  EXPECT_FALSE(map->fault());
  file.cut(5);
  EXPECT_TRUE(all_lost(map->bytes().subspan(7 * kPage)));
  std::ofstream(file.path, std::ios::app) << std::string(20 * kPage, '\1');
  ASSERT_TRUE(map->fault()) << "the file is long again, the fault stays";
  EXPECT_EQ(map->fault()->code, ErrorCode::kDatasetInvalid);
  // The first byte that all_lost() reads: 12 of page 7.
  EXPECT_NE(map->fault()->message.find(file.path.string() + ": byte 28684 cannot be read"), std::string::npos)
      << map->fault()->message;
  file.cut(5);
  EXPECT_TRUE(all_lost(map->bytes().subspan(5 * kPage))) << "a second fault, before the first one";
  EXPECT_TRUE(all_are(map->bytes().first(5 * kPage), 1)) << "the bytes that the file still has";
  EXPECT_FALSE(whole->fault()) << "the other file is whole";
  EXPECT_TRUE(all_are(whole->bytes(), 1));
}

TEST(WatchedMap, FindsACutWithinAPageWhichRaisesNoSignal) {
  const TempFolder folder;
  const OnesFile file(folder.path() / "ones");
  const auto map = file.watch();
  file.cut(kPages - 1, 100);
  EXPECT_TRUE(all_are(map->bytes().subspan((kPages - 1) * kPage + 100), 0));
  ASSERT_TRUE(map->fault());
  EXPECT_NE(map->fault()->message.find(": byte 61540 cannot be read"), std::string::npos)
      << map->fault()->message;
}

TEST(WatchedMap, FindsACutWithinAPageWhenThereWasNoDescriptorLeft) {
  const TempFolder folder;
  const OnesFile file(folder.path() / "ones");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto map = file.watch();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(map->fault());
  file.cut(kPages - 1, 100);
  EXPECT_TRUE(map->fault());
}

TEST(WatchedMap, ReadsALargeLostPartWithFewMappings) {
  const TempFolder folder;
  const fs::path path = folder.path() / "large";
  std::ofstream(path, std::ios::binary) << "1";
  fs::resize_file(path, 100'000 * kPage);
  const bip::file_mapping file(path.c_str(), bip::read_only);
  const bip::mapped_region region(file, bip::read_only);
  const std::span<const std::uint8_t> bytes(static_cast<const std::uint8_t*>(region.get_address()),
                                            region.get_size());
  const WatchedMap map(bytes, file.get_mapping_handle().handle, path.string());
  fs::resize_file(path, kPage);
  // More lost pages than a process can have mappings.
  EXPECT_TRUE(all_lost(bytes.subspan(kPage)));
  EXPECT_TRUE(map.fault());
}

TEST(WatchedMap, TakesFaultsOfManyThreadsAndManyMaps) {
  const TempFolder folder;
  std::vector<std::unique_ptr<OnesFile>> files;
  std::vector<std::unique_ptr<WatchedMap>> maps;
  for (int i = 0; i < 200; ++i) {
    files.push_back(std::make_unique<OnesFile>(folder.path() / std::to_string(i)));
    maps.push_back(files.back()->watch());
    if (i % 2 == 0) files.back()->cut(1);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < maps.size(); ++i) {
        const bool lost = all_lost(maps[i]->bytes().subspan(kPage));
        EXPECT_EQ(lost, i % 2 == 0);
        EXPECT_EQ(maps[i]->fault().has_value(), lost) << "a thread that reads lost pages finds the fault";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(WatchedMap, AFaultElsewhereEndsTheProcessAsBefore) {
  const TempFolder folder;
  const OnesFile watched(folder.path() / "watched"), other(folder.path() / "other");
  EXPECT_EXIT(
      {
        other.watch().reset();
        const auto map = watched.watch();
        other.cut(1);
        std::exit(all_are(other.bytes(), 1) ? 1 : 2);
      },
      // A sanitizer installed its handler before, which ends the process differently.
      [](int status) { return WIFSIGNALED(status) || WEXITSTATUS(status) > 2; }, "");
}

TEST(UnwatchedFaults, FindOnlyEmptyPagesInTheirThread) {
  const TempFolder folder;
  const OnesFile file(folder.path() / "ones");
  const UnwatchedFaults faults;
  EXPECT_TRUE(all_are(file.bytes(), 1));
  EXPECT_FALSE(faults.any());
  file.cut(1);
  EXPECT_TRUE(all_are(file.bytes().first(kPage), 1));
  EXPECT_TRUE(all_lost(file.bytes().subspan(kPage)));
  EXPECT_TRUE(faults.any());
}

TEST(WatchedMap, TheMappingAroundAnAddressIsTheWholeOne) {
  const TempFolder folder;
  const OnesFile file(folder.path() / "ones");
  const auto found = mapping_around(file.bytes().data() + 3 * kPage + 17);
  EXPECT_EQ(found.data(), file.bytes().data());
  EXPECT_EQ(found.size(), file.bytes().size());
  EXPECT_TRUE(mapping_around(nullptr).empty());
}

}  // namespace
}  // namespace headrace::server::mapped
