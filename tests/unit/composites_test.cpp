// Sources made of other sources: their samples and their errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/source/combine/concat.h"
#include "server/source/combine/relabel.h"
#include "server/source/combine/repeat.h"
#include "server/source/combine/split.h"
#include "server/source/combine/zip.h"
#include "tests/numbers_source.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

using headrace::testing::Numbers;
using headrace::testing::NumbersOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using SourcePtr = std::shared_ptr<const Source>;

SourcePtr numbers(NumbersOptions options) {
  return std::make_shared<Numbers>(std::move(options));
}

template <class T>
std::string message(const Result<T>& result) {
  EXPECT_FALSE(result) << "nothing was refused";
  return result ? "" : result.error().message;
}

std::vector<std::int64_t> labels(const Source& source) {
  std::vector<std::int64_t> out;
  for (std::uint64_t i = 0; i < source.size(); ++i) out.push_back(source.label(i));
  return out;
}

std::uint8_t value(const Source& source, std::uint64_t index, std::size_t field = 0) {
  Sample out;
  EXPECT_TRUE(source.read(index, out));
  return out.items.at(field).bytes[0];
}

TEST(Concat, ServesItsMembersOneAfterTheOtherUnderTheirNames) {
  const auto both =
      concat({{"a", numbers({.first = 10, .count = 3})}, {"b", numbers({.first = 50, .count = 2})}}).value();
  ASSERT_EQ(both->size(), 5U);
  EXPECT_EQ(value(*both, 2), 12);
  EXPECT_EQ(value(*both, 3), 50);
  EXPECT_EQ(both->name(4), "b/number 51");
  EXPECT_EQ(both->whole_index(4), 4U);
  EXPECT_EQ(&both->whole(), both.get());
}

TEST(Concat, GivesOneNameOneLabel) {
  const auto both = concat({{"a", numbers({.count = 4, .classes = {"cat", "dog"}})},
                            {"b", numbers({.count = 6, .classes = {"ant", "dog", "cat"}})}})
                        .value();
  EXPECT_THAT(both->class_names(), ElementsAre("cat", "dog", "ant"));
  EXPECT_THAT(labels(*both), ElementsAre(0, 1, 0, 1, /* b */ 2, 1, 0, 2, 1, 0));
}

TEST(Concat, OfNumberedClassesKeepsTheNumbers) {
  const auto both = concat({{"a", numbers({.count = 2, .classes = {"0", "1"}})},
                            {"b", numbers({.count = 3, .classes = {"0", "1", "2"}})}})
                        .value();
  EXPECT_THAT(labels(*both), ElementsAre(0, 1, 0, 1, 2));
  EXPECT_EQ(both->class_names().size(), 3U);
}

TEST(Concat, TakesFieldsInAnyOrder) {
  const auto both = concat({{"a", numbers({.first = 1, .count = 1, .fields = {"x", "y", "z"}})},
                            {"b", numbers({.first = 5, .count = 1, .fields = {"z", "x", "y"}})}})
                        .value();
  // Numbers' field k holds the number + 100 * k.
  EXPECT_EQ(value(*both, 0, 2), 201);
  EXPECT_EQ(value(*both, 1, 0), 105) << "x is b's second";
  EXPECT_EQ(value(*both, 1, 1), 205);
  EXPECT_EQ(value(*both, 1, 2), 5);
}

TEST(Concat, RefusesFieldsThatDisagreeAndNamesThem) {
  const auto plain = numbers({.count = 1, .fields = {"x"}});
  EXPECT_THAT(message(concat({{"a", plain}, {"b", numbers({.count = 1, .fields = {"x", "y"}})}})),
              HasSubstr("concat: `b` has a field `y`, and `a` has none"));
  EXPECT_THAT(message(concat({{"a", numbers({.count = 1, .fields = {"x", "y"}})}, {"b", plain}})),
              HasSubstr("concat: `a` has a field `y`, and `b` has none"));
  EXPECT_THAT(message(concat({{"a", plain}, {"b", numbers({.count = 1, .fields = {"x"}, .width = 3})}})),
              HasSubstr("field `x` is uint8 [1] in `a` and uint8 [3] in `b`"));
}

TEST(Concat, RefusesClassesThatDoNotGoTogether) {
  const auto named = numbers({.count = 1, .classes = {"cat"}});
  EXPECT_THAT(message(concat({{"a", named}, {"b", numbers({.count = 1, .classes = {}})}})),
              HasSubstr("`a` has classes, and `b` has none"));
  EXPECT_THAT(message(concat({{"a", named}, {"b", numbers({.count = 1, .classes = {"0", "1"}})}})),
              HasSubstr("`a` names its classes, and `b` numbers them"));
}

TEST(Concat, NamesALabelThatIsOutOfRange) {
  const auto odd = numbers({.count = 3, .classes = {"cat", "dog"}, .shift = 1});
  const auto refused = concat({{"a", numbers({.count = 1, .classes = {"cat"}})}, {"odd", odd}});
  EXPECT_EQ(refused ? ErrorCode{} : refused.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(message(refused), HasSubstr("concat: `odd`: the label of number 1 is 2, which has no class"));
}

TEST(Subset, TakesTheFirstAFractionClassesOrAFilesIndices) {
  const TempFolder folder;
  const auto all = numbers({.count = 100, .classes = {"even", "odd"}});
  EXPECT_EQ(first_samples(all, 7).value()->size(), 7U);
  const auto tenth = subset(all, SplitFractions{{{"", 0.1}}, 3}).value();
  EXPECT_EQ(tenth->size(), 10U);
  const auto odd = subset(all, SplitClasses{{{"", {"odd"}}}}).value();
  EXPECT_EQ(odd->size(), 50U);
  EXPECT_EQ(odd->whole_index(3), 7U);
  const auto some = listed_samples(odd, folder.put("i.txt", "9\n3\n")).value();
  EXPECT_EQ(value(*some, 0), 3) << "indices are those that batches report, and are put in order";
  EXPECT_EQ(some->whole_index(1), 9U);
  EXPECT_EQ(some->index_in_whole(1), 9U);
  EXPECT_EQ(&some->whole(), all.get());
}

TEST(Subset, RefusesNothingAndWhatIsNotThere) {
  const TempFolder folder;
  const auto all = numbers({.count = 5, .classes = {"even", "odd"}});
  EXPECT_THAT(message(subset(all, SplitFractions{{{"", 0.01}}, 0})),
              HasSubstr("subset: it has no samples (the source has 5)"));
  EXPECT_THAT(message(first_samples(all, 6)), HasSubstr("the first 6 samples, but there are 5"));
  EXPECT_THAT(message(subset(all, SplitClasses{{{"", {"evn"}}}})),
              HasSubstr("subset: it names class \"evn\", which does not exist; classes: even, odd; did you "
                        "mean \"even\"?"));
  EXPECT_THAT(message(listed_samples(all, folder.put("i.txt", "1\n3\n1\n"))),
              HasSubstr("lists sample 1 twice"));
  EXPECT_THAT(message(listed_samples(all, folder.put("j.txt", "9\n"))),
              HasSubstr("j.txt:1: there is no sample 9"));
}

TEST(Repeat, HasEachSampleAsOftenWithIndicesOfTheirOwn) {
  const auto twice = repeat(numbers({.first = 4, .count = 3, .classes = {"even", "odd"}}), 2).value();
  ASSERT_EQ(twice->size(), 6U);
  EXPECT_EQ(value(*twice, 4), 5);
  EXPECT_EQ(twice->label(4), twice->label(1));
  EXPECT_EQ(twice->whole_index(4), 4U);
  EXPECT_EQ(twice->name(1), "number 5#0");
  EXPECT_EQ(twice->name(4), "number 5#1");
}

TEST(Repeat, RefusesMoreSamplesThanCanBeCounted) {
  EXPECT_THAT(message(repeat(numbers({.count = 3}), ~std::uint64_t{0})), HasSubstr("repeat: 3 samples"));
  EXPECT_FALSE(repeat(numbers({.count = 3}), 0));
}

TEST(Zip, HasTheFieldsOfAllAndTheClassOfOne) {
  const auto both =
      zip({{"a", numbers({.first = 1, .count = 3, .classes = {}, .fields = {"x", "y"}})},
           {"b", numbers({.first = 7, .count = 3, .classes = {"u", "v", "w"}, .fields = {"z"}})}},
          {})
          .value();
  ASSERT_EQ(both->fields().size(), 3U);
  EXPECT_EQ(both->fields()[2].name, "z");
  Sample out;
  out.item(5).own(1);  // the reader's Sample may come from a source of more fields
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(both->read(1, out));
    EXPECT_EQ(out.items[0].bytes[0], 2);
    EXPECT_EQ(out.items[1].bytes[0], 102);
    EXPECT_EQ(out.items[2].bytes[0], 8);
  }
  EXPECT_THAT(labels(*both), ElementsAre(1, 2, 0));
  EXPECT_EQ(both->name(1), "number 2");
}

TEST(Zip, MayBeNestedInOthersAndInItself) {
  const auto x = numbers({.first = 1, .count = 2, .classes = {}, .fields = {"x"}});
  const auto y = numbers({.first = 11, .count = 2, .classes = {}, .fields = {"y"}});
  const auto z = numbers({.first = 21, .count = 2, .classes = {}, .fields = {"z"}});
  const auto inner = zip({{"y", y}, {"z", z}}, {}).value();
  const auto outer = zip({{"inner", inner}, {"x", x}}, {}).value();
  const auto other = numbers({.first = 31, .count = 1, .classes = {}, .fields = {"x", "y", "z"}});
  const auto all = concat({{"other", other}, {"outer", outer}}).value();
  EXPECT_EQ(value(*all, 2, 0), 2);
  EXPECT_EQ(value(*all, 2, 1), 12);
  EXPECT_EQ(value(*all, 2, 2), 22);
}

TEST(Zip, NamesWhatDoesNotFit) {
  const auto three = numbers({.count = 3, .classes = {"c"}, .fields = {"x"}});
  EXPECT_THAT(message(zip({{"a", three}, {"b", numbers({.count = 2, .fields = {"y"}})}}, {})),
              HasSubstr("zip: `a` has 3 samples and `b` 2"));
  const auto same = numbers({.count = 3, .classes = {"c"}, .fields = {"x"}});
  EXPECT_THAT(
      message(zip({{"a", three}, {"b", same}}, {})),
      HasSubstr(
          "`a` and `b` both have a field `x`: call one of them otherwise, as by rename: {b: {x: x_2}}"));
  EXPECT_THAT(message(zip({{"a", three}, {"b", same}}, {.rename = {{"b", {{"xx", "y"}}}}})),
              HasSubstr("rename: `b` has no field `xx`; fields: x; did you mean \"x\"?"));
  const ZipOptions renamed{.rename = {{"b", {{"x", "y"}}}}};
  EXPECT_THAT(message(zip({{"a", three}, {"b", same}}, renamed)),
              HasSubstr("a and b have classes: name in `label` the member whose"));
  const auto plain = numbers({.count = 3, .classes = {}, .fields = {"z"}});
  EXPECT_THAT(message(zip({{"a", three}, {"c", plain}}, {.label = "c"})),
              HasSubstr("label: `c` is not a member with classes; members with classes: a"));
}

TEST(Relabel, MergesClassesAndRenumbersThem) {
  const auto all = numbers({.count = 4, .classes = {"ant", "wolf", "dog", "emu"}});
  const auto fewer = relabel(all, {.remap = {{"wolf", "dog"}}}).value();
  EXPECT_THAT(fewer->class_names(), ElementsAre("ant", "dog", "emu"));
  EXPECT_THAT(labels(*fewer), ElementsAre(0, 1, 1, 2));
  const auto ordered =
      relabel(all, {.remap = {{"wolf", "dog"}, {"ant", "emu"}}, .classes = {"yak", "emu", "dog"}}).value();
  EXPECT_THAT(ordered->class_names(), ElementsAre("yak", "emu", "dog"));
  EXPECT_THAT(labels(*ordered), ElementsAre(1, 2, 2, 1));
  EXPECT_EQ(&ordered->whole(), all.get());
  EXPECT_NE(fewer->fingerprint(), ordered->fingerprint());
  EXPECT_NE(fewer->fingerprint(), all->fingerprint());
}

TEST(Relabel, NamesAllMissingClassesAtOnce) {
  const auto all = numbers({.count = 4, .classes = {"ant", "wolf", "dog"}});
  EXPECT_THAT(
      message(relabel(all, {.remap = {{"wlf", "dog"}}, .classes = {"ant", "dgo", "wolf", "ant"}})),
      AllOf(
          HasSubstr("remap names class \"wlf\", which does not exist; classes: ant, wolf, dog; did you mean "
                    "\"wolf\"?"),
          HasSubstr("`classes` has \"ant\" twice"),
          HasSubstr("class \"dog\" is none of `classes`: list it, remap it, or leave its samples out by a "
                    "subset; did you mean \"dgo\"?")));
  EXPECT_THAT(message(relabel(numbers({.count = 1, .classes = {}}), {.remap = {{"a", "b"}}})),
              HasSubstr("have no classes"));
  EXPECT_THAT(
      message(relabel(numbers({.count = 9, .classes = {"a", "b"}, .shift = 3}), {.classes = {"b", "a"}})),
      HasSubstr("the label of number 0 is 3, which has no class: `classes` names 2"));
}

}  // namespace
}  // namespace headrace::server::source
