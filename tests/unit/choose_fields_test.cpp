// Sources that read only the fields that are wanted.
#include "server/source/combine/choose_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/source/combine/concat.h"
#include "server/source/combine/relabel.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/split.h"
#include "server/source/combine/zip.h"
#include "server/source/formats/paired_folders.h"
#include "tests/numbers_source.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

using headrace::testing::Numbers;

FieldSet set_of(std::initializer_list<std::size_t> fields) {
  FieldSet set;
  for (const std::size_t field : fields) set.add(field);
  return set;
}

TEST(FieldSets, AreCutAndSwapped) {
  const FieldSet set = set_of({0, 3});
  EXPECT_TRUE(set.has(3) && !set.has(2));
  EXPECT_TRUE(set.has_any(1) && !set.after(1).has_any(2) && set.after(1).has_any(3));
  EXPECT_TRUE(set.after(3).has(0));
  EXPECT_TRUE(set.swapped(0, 1).has(1) && !set.swapped(0, 1).has(0) && set.swapped(0, 3).has(0));
  EXPECT_TRUE(set.has(64) && set.after(10).has(60)) << "beyond the 64th, fields are always wanted";
  EXPECT_TRUE(FieldSet::all().after(64).has(0));
}

TEST(ChosenFields, AreTheOnlyOnesReadThroughAllKindsOfSources) {
  const auto numbers = [](std::uint64_t first, std::uint64_t count, std::vector<std::string> fields) {
    return std::make_shared<Numbers>(headrace::testing::NumbersOptions{
        .first = first, .count = count, .classes = {"a"}, .fields = std::move(fields)});
  };
  // Numbers' field k holds the number + 100 * k.
  const auto other = numbers(1, 4, {"y", "z", "x"});
  const auto xy = numbers(11, 2, {"x", "y"}), z = numbers(21, 2, {"z"});
  const auto zipped = zip({{"z", z}, {"xy", xy}}, {.of = {}, .rename = {}, .label = "z"}).value();
  RelabelOptions relabelling;
  relabelling.remap = {{"a", "b"}};
  const auto twice = repeat(relabel(zipped, relabelling).value(), 2).value();
  const auto all = concat({{"other", first_samples(other, 2).value()}, {"twice", twice}}).value();
  ASSERT_EQ(all->fields()[0].name, "y");
  const std::vector<std::vector<int>> expected = {{1, 101, 201}, {2, 102, 202}, {111, 21, 11},
                                                  {112, 22, 12}, {111, 21, 11}, {112, 22, 12}};
  ASSERT_EQ(all->size(), expected.size());
  for (unsigned bits = 1; bits < 8; ++bits) {
    FieldSet set;
    std::uint64_t wanted = 0;
    for (std::size_t f = 0; f < 3; ++f) {
      if ((bits >> f & 1) == 0) continue;
      set.add(f);
      ++wanted;
    }
    const auto chosen = choose_fields(all, set);
    EXPECT_EQ(chosen == all, bits == 7);
    Sample out;
    for (std::uint64_t i = 0; i < all->size(); ++i) {
      const auto items_read = [&] { return other->items_read + xy->items_read + z->items_read; };
      const std::uint64_t before = items_read();
      ASSERT_TRUE(chosen->read(i, out));
      EXPECT_EQ(items_read() - before, wanted);
      for (std::size_t f = 0; f < 3; ++f) {
        if (set.has(f)) {
          EXPECT_EQ(out.items[f].bytes[0], expected[i][f]) << "sample " << i << " field " << f;
        } else {
          EXPECT_TRUE(out.items[f].bytes.empty());
        }
      }
    }
  }
}

TEST(ChosenFields, DoNotOpenTheFilesOfTheOthers) {
  TempFolder folder;
  const auto jpeg = [](int width) {
    const auto bytes = pixels::make_jpeg({.width = width, .height = 8});
    return std::string(bytes.begin(), bytes.end());
  };
  folder.put("lr/0.jpg", jpeg(8));
  folder.put("hr/0.jpg", jpeg(32));
  const auto pairs = open_paired_folders({{"lr", {.path = folder.path() / "lr", .scale = 1}},
                                          {"hr", {.path = folder.path() / "hr", .scale = 1}}})
                         .value();
  const std::size_t hr = pairs->fields()[0].name == "hr" ? 0 : 1;
  std::filesystem::remove(folder.path() / "lr/0.jpg");
  Sample out;
  EXPECT_FALSE(pairs->read(0, out));
  EXPECT_TRUE(choose_fields(pairs, set_of({hr}))->read(0, out));
  EXPECT_EQ(std::string(out.items[hr].bytes.begin(), out.items[hr].bytes.end()), jpeg(32));
  EXPECT_FALSE(choose_fields(pairs, set_of({1 - hr}))->read(0, out));
}

}  // namespace
}  // namespace headrace::server::source
