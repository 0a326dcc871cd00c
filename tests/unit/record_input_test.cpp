// Records from another program: accepted ones, named errors, and resuming.
#include "server/pack/record_input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <limits>

#include "clientlib/ring/unique_fd.h"
#include "server/pack/packer.h"
#include "server/source/formats/lmdb.h"
#include "tests/temp_folder.h"

namespace headrace::server::pack {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Bytes {
  std::string bytes;
  std::uint32_t height = 0, width = 0;
};

std::string head(std::uint64_t index, std::int64_t label, std::uint32_t name_bytes, std::uint32_t kind) {
  std::string out;
  put(out, index);
  put(out, label);
  put(out, name_bytes);
  put(out, kind);
  return out;
}

std::string sample(std::uint64_t index, std::int64_t label, const std::vector<Bytes>& fields) {
  const std::string name = "s" + std::to_string(index);
  std::string out = head(index, label, static_cast<std::uint32_t>(name.size()), 1);
  for (const Bytes& field : fields) {
    put(out, std::uint64_t{field.bytes.size()});
    put(out, field.height);
    put(out, field.width);
  }
  out += name;
  for (const Bytes& field : fields) out += field.bytes;
  return out;
}

constexpr auto kHeader =
    R"({"headrace": "records", "version": 1, "count": 6, "labelled": true, "classes": ["cat", "dog"], "fields": [)"
    R"({"name": "image", "content": "pixels"}, {"name": "boxes", "content": "ragged", "dtype": "int16", "shape": [4]}]})"
    "\n";

class RecordInputTest : public ::testing::Test {
 protected:
  /// Sample i: 2 x 3 pixels of value i, i boxes.
  static std::string good(std::uint64_t index) {
    const char value = static_cast<char>(index);
    return sample(index, static_cast<std::int64_t>(index % 2),
                  {{std::string(18, value), 2, 3}, {std::string(8 * index, value)}});
  }
  static std::string from_to(std::uint64_t begin, std::uint64_t end) {
    std::string out;
    for (std::uint64_t i = begin; i < end; ++i) out += good(i);
    return out;
  }
  Result<PackReport> pack(const std::string& records, const store::Options& how = {}) {
    folder_.put("records", records);
    std::ofstream(folder_.path() / "answer").close();
    const ring::UniqueFd in(::open((folder_.path() / "records").c_str(), O_RDONLY));
    const ring::UniqueFd out(::open((folder_.path() / "answer").c_str(), O_WRONLY));
    auto input = RecordInput::open(in.get(), out.get(), stop_);
    if (!input) return fail(input.error());
    return pack::pack(**input, out_, {.how = how, .threads = 3}, stop_, [](const PackProgress&) {});
  }
  std::string answer() const {
    std::ifstream file(folder_.path() / "answer");
    std::string line;
    std::getline(file, line);
    return line;
  }
  std::string refusal(const std::string& records) {
    std::filesystem::remove_all(out_);
    const auto report = pack(records);
    if (report) return "it was packed";
    EXPECT_EQ(report.error().code, ErrorCode::kBadMessage);
    const auto opened = source::open_lmdb({out_, true});
    EXPECT_FALSE(opened);
    return report.error().message;
  }
  std::shared_ptr<const source::Source> packed() const { return source::open_lmdb({out_, true}).value(); }

  TempFolder folder_;
  const std::filesystem::path out_ = folder_.path() / "out.lmdb";
  std::atomic<bool> stop_{false};
};

TEST_F(RecordInputTest, SamplesComeBackAsTheyWereSent) {
  const auto report = pack(kHeader + from_to(0, 6) + head(6, 0, 0, 0));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(answer(), R"({"complete":false,"next":0})");
  const auto set = packed();
  ASSERT_EQ(set->size(), 6u);
  EXPECT_THAT(set->class_names(), ElementsAre("cat", "dog"));
  EXPECT_EQ(set->fields().at(0).height, 2) << "all have this size";
  EXPECT_EQ(set->fields().at(0).width, 3);
  EXPECT_EQ(set->most_values(1, 2), 9u);
  source::Sample seen;
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(set->read(i, seen));
    EXPECT_EQ(set->label(i), static_cast<std::int64_t>(i % 2));
    EXPECT_EQ(set->name(i), "s" + std::to_string(i));
    EXPECT_THAT(seen.item(0).bytes,
                ::testing::ElementsAreArray(std::vector<std::uint8_t>(18, static_cast<std::uint8_t>(i))));
    EXPECT_EQ(seen.item(0).pixels.height, 2);
    EXPECT_EQ(seen.item(1).bytes.size(), 8 * i);
  }
}

TEST_F(RecordInputTest, WhatEndsEarlyGoesOnWhereItWasAndIsNeverWhole) {
  const std::string cut = good(4).substr(0, 60);
  EXPECT_THAT(refusal(kHeader + from_to(0, 4) + cut), HasSubstr("at sample 4: they end within a field"));
  const auto report = pack(kHeader + from_to(4, 6) + head(6, 0, 0, 0));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(answer(), R"({"complete":false,"next":4})");
  EXPECT_EQ(report->before, 4u);
  const auto set = packed();
  EXPECT_EQ(set->label(3), 1);
  EXPECT_EQ(set->label(5), 1);
  EXPECT_EQ(set->fields().at(0).height, 2);
  EXPECT_EQ(set->most_values(1, 6), 15u);
  const auto fingerprint = set->fingerprint();
  EXPECT_TRUE(pack(kHeader)->was_complete);
  EXPECT_EQ(answer(), R"({"complete":true,"next":6})");
  std::filesystem::remove_all(out_);
  ASSERT_TRUE(pack(kHeader + from_to(0, 6) + head(6, 0, 0, 0), {.compression = store::Compression::kZstd}));
  EXPECT_EQ(packed()->fingerprint(), fingerprint) << "depends on what was sent, not on how";
}

TEST_F(RecordInputTest, TheFingerprintIsOfTheContent) {
  ASSERT_TRUE(pack(kHeader + from_to(0, 6) + head(6, 0, 0, 0)));
  const auto fingerprint = packed()->fingerprint();
  std::filesystem::remove_all(out_);
  std::string other = from_to(0, 6);
  other.back() ^= 1;
  ASSERT_TRUE(pack(kHeader + other + head(6, 0, 0, 0)));
  EXPECT_NE(packed()->fingerprint(), fingerprint);
}

TEST_F(RecordInputTest, ACountThatIsNotKnownIsTheEndMarks) {
  const std::string header =
      R"({"headrace": "records", "version": 1, "labelled": true, "fields": [{"name": "x", "content": "values"}]})"
      "\n";
  const auto one = [](std::uint64_t i) { return sample(i, static_cast<std::int64_t>(3 * i), {{"x"}}); };
  EXPECT_THAT(refusal(header + one(0) + one(1)), HasSubstr("at sample 2: they end before their end mark"));
  ASSERT_TRUE(pack(header + one(2) + head(3, 0, 0, 0)));
  EXPECT_EQ(packed()->size(), 3u);
  EXPECT_EQ(packed()->class_names().size(), 7u) << "numbers up to the largest";
  EXPECT_TRUE(pack(header)->was_complete);
  std::filesystem::remove_all(out_);
  const auto none = pack(header + head(0, 0, 0, 0));
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("there is no sample to pack"));
}

TEST_F(RecordInputTest, ABadSampleIsPackedAsOne) {
  const std::string reason = "ValueError: no";
  const std::string bad = head(2, 0, static_cast<std::uint32_t>(reason.size()), 2) + reason;
  const auto report = pack(kHeader + from_to(0, 2) + bad + from_to(3, 6) + head(6, 0, 0, 0));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_THAT(report->first_undecodable, ElementsAre("2: ValueError: no"));
  source::Sample seen;
  const auto read = packed()->read(2, seen);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kBadSample);
  EXPECT_EQ(packed()->fields().at(0).height, 2);
}

TEST_F(RecordInputTest, ImagesOfSeveralSizesHaveNone) {
  std::string records = from_to(0, 5) + sample(5, 0, {{std::string(9, '5'), 3, 1}, {}});
  ASSERT_TRUE(pack(kHeader + records + head(6, 0, 0, 0)));
  EXPECT_EQ(packed()->fields().at(0).height, 0);
}

TEST_F(RecordInputTest, ErrorsNameWhatIsWrongInAHeader) {
  const auto header = [](const std::string& fields, const std::string& more = "") {
    return R"({"headrace": "records", "version": 1, )" + more + R"("fields": [)" + fields + "]}\n";
  };
  const std::string x = R"({"name": "x", "content": "values"})";
  EXPECT_THAT(refusal(""), HasSubstr("there is none; it is JSON"));
  EXPECT_THAT(refusal("[1]\n"), HasSubstr("it is not a JSON object"));
  EXPECT_THAT(refusal("{\"headrace\": \"re"), HasSubstr("there is none"));
  EXPECT_THAT(refusal("{\"headrace\": \"records\", \"version\": 2}\n"), HasSubstr("its version is 2"));
  EXPECT_THAT(refusal("{\"headrace\": \"records\", \"version\": 1e300}\n"),
              HasSubstr("found 1e+300, expected a 64-bit integer"));
  EXPECT_THAT(refusal(header("")), HasSubstr("expected 1 to 64 fields"));
  EXPECT_THAT(refusal(header(x + "," + x)), HasSubstr("field `x` comes twice"));
  EXPECT_THAT(refusal(header(R"({"name": "X", "content": "values"})")), HasSubstr("names are of a to z"));
  EXPECT_THAT(refusal(header(R"({"name": "x", "content": "video"})")), HasSubstr("found `video`"));
  EXPECT_THAT(refusal(header(R"({"name": "x", "content": "values", "dtype": "uint16"})")),
              HasSubstr("its dtype"));
  EXPECT_THAT(refusal(header(R"({"name": "x", "content": "ragged", "shape": [0]})")),
              HasSubstr("its shape has a 0"));
  EXPECT_THAT(refusal(header(R"({"name": "x", "content": "values", "shape": [1099511627776, 4]})")),
              HasSubstr("its shape is too large"));
  EXPECT_THAT(refusal(header(R"({"name": "x", "content": "pixels", "mask": true})")),
              HasSubstr("one channel"));
  EXPECT_THAT(refusal(header(R"({"name": "label", "content": "values"})", R"("labelled": true, )")),
              HasSubstr("field `label` is the class"));
  EXPECT_THAT(refusal(header(x, R"("classes": ["a"], )")), HasSubstr("classes without `labelled`"));
  EXPECT_THAT(refusal(header(x, R"("count": 0, )")), HasSubstr("count 0"));
  EXPECT_THAT(refusal(header(x, R"("count": "many", )")), HasSubstr("the first line of the records"));
}

TEST_F(RecordInputTest, SamplesThatDifferFromTheHeaderAreRefused) {
  const Bytes image{std::string(18, 'x'), 2, 3};
  const auto refused = [&](const std::string& records) { return refusal(kHeader + records); };
  EXPECT_THAT(refused(good(1)), HasSubstr("at sample 0: its index is 1"));
  EXPECT_THAT(refused(head(0, 0, 1, 7)), HasSubstr("its head is invalid"));
  EXPECT_THAT(refused(head(0, 0, 5000, 1)), HasSubstr("its text has 5000 bytes"));
  EXPECT_THAT(refused(head(0, 0, 0, 2)), HasSubstr("does not say why"));
  EXPECT_THAT(refused(sample(0, 2, {image, {}})), HasSubstr("its label is 2, which has no class"));
  EXPECT_THAT(refused(sample(0, -1, {image, {}})), HasSubstr("its label is -1"));
  EXPECT_THAT(refused(sample(0, 0, {{image.bytes, 3, 3}, {}})),
              HasSubstr("3 x 3 pixels of 3 channels are not 18 bytes"));
  EXPECT_THAT(refused(sample(0, 0, {{image.bytes, 0, 0}, {}})), HasSubstr("0 x 0 is not the size"));
  EXPECT_THAT(refused(sample(0, 0, {{image.bytes, 4'000'000'000, 3}, {}})), HasSubstr("is not the size"));
  EXPECT_THAT(refused(sample(0, 0, {image, {"1234567"}})),
              HasSubstr("7 bytes are no whole number of values of 8"));
  EXPECT_THAT(refused(sample(0, 0, {image, {"12345678", 1, 1}})), HasSubstr("only pixels have a size"));
  EXPECT_THAT(refused(from_to(0, 5) + head(5, 0, 0, 0)), HasSubstr("they end, but 6 were announced"));
  EXPECT_THAT(refused(from_to(0, 7)), HasSubstr("it is one more than the 6 that were announced"));
  EXPECT_THAT(refused(from_to(0, 6)), HasSubstr("before their end mark"));
}

TEST_F(RecordInputTest, AHeaderThatAnnouncesManyBytesAllocatesNoMemory) {
  std::string records = kHeader + head(0, 0, 0, 1);
  for (int f = 0; f < 2; ++f) {
    put(records, f == 0 ? std::uint64_t{0} : std::numeric_limits<std::uint64_t>::max());
    put(records, std::uint64_t{0});
  }
  EXPECT_THAT(refusal(records), HasSubstr("0 x 0 is not the size"));
  records = R"({"headrace": "records", "version": 1, "fields": [{"name": "x", "content": "ragged"}]})"
            "\n" +
            head(0, 0, 0, 1);
  std::string huge = records, large = records;
  put(huge, std::uint64_t{1} << 62);
  put(huge, std::uint64_t{0});
  EXPECT_THAT(refusal(huge), HasSubstr("bytes exceed the limit"));
  put(large, std::uint64_t{1} << 30);
  put(large, std::uint64_t{0});
  EXPECT_THAT(refusal(large + "few"), HasSubstr("they end within a field"));
}

TEST_F(RecordInputTest, AnotherDatasetIsNotContinued) {
  refusal(kHeader + from_to(0, 3));
  const auto other = [this](std::string header, const std::string& from, const std::string& to) {
    header.replace(header.find(from), from.size(), to);
    const auto report = pack(header);
    return report ? "it went on" : report.error().message;
  };
  EXPECT_THAT(other(kHeader, "6", "7"), HasSubstr("number of samples: expected 7, found 6"));
  EXPECT_THAT(
      other(kHeader, "[4]", "[2]"),
      HasSubstr(
          "list of fields: expected image: pixels x1, 3 channels; boxes: ragged int16 [2], found image"));
  EXPECT_THAT(other(kHeader, "dog", "cow"),
              HasSubstr("its classes or its source fingerprint differ from the requested ones"));
  EXPECT_THAT(other(kHeader, "\"count\"", "\"identity\": \"v2\", \"count\""),
              HasSubstr("its classes or its source fingerprint differ"));
}

TEST_F(RecordInputTest, WhatIsStoppedKeepsWhatCame) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const ring::UniqueFd in(ends[0]), keep(ends[1]);
  const std::string records = kHeader + from_to(0, 3);
  ASSERT_EQ(::write(keep.get(), records.data(), records.size()), static_cast<ssize_t>(records.size()));
  const ring::UniqueFd out(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  auto input = RecordInput::open(in.get(), out.get(), stop_);
  ASSERT_TRUE(input) << input.error().message;
  // The pipe stays open: only the stop ends the wait for sample 3.
  const auto report = pack::pack(**input, out_, {.threads = 2}, stop_,
                                 [this](const PackProgress& now) { stop_ = now.done == 3; });
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_TRUE(report->stopped);
  EXPECT_EQ(report->packed, 3u);
  EXPECT_FALSE(source::open_lmdb({out_, true}));
}

}  // namespace
}  // namespace headrace::server::pack
