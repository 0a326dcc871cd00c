// Weights and lists of samples: read from files and fields, and every wrong line named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "server/source/combine/sample_list.h"
#include "server/source/combine/sample_weights.h"
#include "server/source/combine/split.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/synthetic.h"
#include "tests/forwarding_source.h"
#include "tests/temp_folder.h"

namespace headrace::server::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class SamplerFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"set/cat/1.jpg", "set/cat/two words.jpg", "set/dog/1.jpg", "set/emu/1.jpg"})
      folder_.put(name, name);
    folder_.put("set/emu/2.jpg", "x");
    whole_ = open_image_folder(folder_.path() / "set").value();
    emus_ = split(whole_, SplitClasses{{{"emus", {"emu"}}, {"rest", {"cat", "dog"}}}}).value().at("emus");
  }
  std::vector<double> weights(const std::string& text, std::optional<double> other = {}) const {
    const auto got = read_weights(*whole_, folder_.put("w.txt", text), other);
    EXPECT_TRUE(got) << got.error().message;
    return got.value_or(std::vector<double>{});
  }
  std::string refused(const std::string& text) const {
    const auto got = read_weights(*whole_, folder_.put("w.txt", text), {});
    EXPECT_EQ(got ? ErrorCode{} : got.error().code, ErrorCode::kConfigInvalid);
    return got ? "" : got.error().message;
  }
  std::string refused_list(const std::string& text) const {
    const auto got = read_sample_list(*whole_, folder_.put("l.txt", text));
    EXPECT_FALSE(got);
    return got ? "" : got.error().message;
  }
  TempFolder folder_;
  std::shared_ptr<const Source> whole_, emus_;
};

TEST_F(SamplerFiles, HoldOneWeightALineInTheOrderOfTheSource) {
  EXPECT_THAT(weights("1\n\n 2.5e-1 \r\n0\n4\n5"), ElementsAre(1, 0.25, 0, 4, 5));
}

TEST_F(SamplerFiles, HoldPathsAndWeightsInAnyOrder) {
  EXPECT_THAT(weights("emu/2.jpg\t5\n./dog/1.jpg 3\ncat/1.jpg   1\r\nemu/1.jpg 4\ncat/two words.jpg 2\n"),
              ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(weights("dog/1.jpg 3", 0.5), ElementsAre(0.5, 0.5, 3, 0.5, 0.5));
}

TEST_F(SamplerFiles, AreOfTheWholeSourceAlsoForAPart) {
  EXPECT_THAT(read_weights(*emus_, folder_.put("n.txt", "1\n2\n3\n4\n5"), {}).value(), ElementsAre(4, 5));
  EXPECT_THAT(read_weights(*emus_, folder_.put("p.txt", "emu/2.jpg 7\nemu/1.jpg 6\ncat/1.jpg 1"), {}).value(),
              ElementsAre(6, 7));
}

TEST_F(SamplerFiles, NameEveryWrongWeight) {
  const auto said = refused("1\n-2\nnan\ninf\nx\n1e999\n");
  EXPECT_THAT(said, HasSubstr("w.txt:2: the weight -2 is negative"));
  EXPECT_THAT(said, HasSubstr("w.txt:3: the weight nan is not a number"));
  EXPECT_THAT(said, HasSubstr("w.txt:4: the weight inf is infinite"));
  EXPECT_THAT(said, HasSubstr("w.txt:5: \"x\" is not a number"));
  EXPECT_THAT(said, HasSubstr("w.txt:6: \"1e999\" is not a number"));
}

TEST_F(SamplerFiles, NameEveryWrongPath) {
  const auto said = refused("cat/1.jpg 1\ncat/9.jpg 1\ncat/1.jpg 2\ndog/1.jpg\ndog/1.jpg x\ndog/1.jpg -1\n");
  EXPECT_THAT(said, HasSubstr("w.txt:2: \"cat/9.jpg\" is not in the source; paths are relative to it"));
  EXPECT_THAT(said, HasSubstr("w.txt:3: \"cat/1.jpg\" has a weight already"));
  EXPECT_THAT(said, HasSubstr("w.txt:4: \"dog/1.jpg\" is not \"relative/path weight\""));
  EXPECT_THAT(said, HasSubstr("w.txt:5: \"dog/1.jpg x\" is not \"relative/path weight\""));
  EXPECT_THAT(said, HasSubstr("w.txt:6: the weight -1 is negative"));
}

TEST_F(SamplerFiles, SayWhatIsMissing) {
  EXPECT_THAT(refused("1\n2\n"), HasSubstr("w.txt: holds 2 weights, the source has 5 samples"));
  EXPECT_THAT(refused("1\n2\n3\n4\n5\n6\n"), HasSubstr("w.txt: holds 6 weights, the source has 5 samples"));
  EXPECT_THAT(refused(""), HasSubstr("w.txt: holds 0 weights"));
  EXPECT_THAT(refused("cat/1.jpg 1\ndog/1.jpg 1\n"),
              HasSubstr("3 of 5 samples have no weight: cat/two words.jpg, emu/1.jpg, emu/2.jpg; list them"));
  EXPECT_THAT(read_weights(*whole_, folder_.path() / "no.txt", {}).error().message,
              HasSubstr("no.txt: the weights cannot be read: No such file"));
  EXPECT_THAT(read_weights(*whole_, folder_.path(), {}).error().message, HasSubstr("is not a file"));
  EXPECT_THAT(read_weights(*whole_, "/dev/zero", {}).error().message, HasSubstr("is not a file"));
}

TEST_F(SamplerFiles, NameTwentyLinesAndCountTheOthers) {
  std::string text = "1\n";
  for (int i = 0; i < 25; ++i) text += "-1\n";
  const auto said = refused(text);
  EXPECT_THAT(said, HasSubstr("w.txt:21: "));
  EXPECT_THAT(said, Not(HasSubstr("w.txt:22: ")));
  EXPECT_THAT(said, HasSubstr("\nand 5 more"));
}

TEST_F(SamplerFiles, ListIndicesOfTheWholeSource) {
  EXPECT_THAT(read_sample_list(*whole_, folder_.put("l.txt", "4\n0\n\n4\r\n")).value(), ElementsAre(4, 0, 4));
  EXPECT_THAT(read_sample_list(*emus_, folder_.put("l.txt", "4\n3\n")).value(), ElementsAre(1, 0));
}

TEST_F(SamplerFiles, NameEveryWrongIndex) {
  const auto said = refused_list("0\n5\n-1\n1.5\nx\n99999999999999999999999\n");
  EXPECT_THAT(said, HasSubstr("l.txt:2: there is no sample 5 here; there are 5, from 0 to 4"));
  for (const char* wrong : {"3: \"-1\"", "4: \"1.5\"", "5: \"x\""})
    EXPECT_THAT(said, HasSubstr("l.txt:" + std::string(wrong) + " is not the index of a sample"));
  EXPECT_THAT(said, HasSubstr("l.txt:6: there is no sample 99999999999999999999999"));
  EXPECT_THAT(refused_list("\n\n"), HasSubstr("l.txt: lists 0 samples"));
  EXPECT_THAT(read_sample_list(*whole_, folder_.path() / "no.txt").error().message,
              HasSubstr("no.txt: the list cannot be read: No such file"));
  EXPECT_THAT(read_sample_list(*emus_, folder_.put("l.txt", "0\n")).error().message,
              HasSubstr("l.txt:1: there is no sample 0 here; there are 2, from 3 to 4"));
}

/// A packed part is a whole source, but its batches report the indices of the source that it was packed from.
class Packed final : public testing::ForwardingSource {
 public:
  explicit Packed(std::shared_ptr<const Source> real) : ForwardingSource(std::move(real)) {}
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override { return 100 + 10 * index; }
};

TEST_F(SamplerFiles, AreOfThePackedSetWithTheIndicesThatItsBatchesReport) {
  const Packed packed(whole_);
  EXPECT_THAT(read_weights(packed, folder_.put("w.txt", "1\n2\n3\n4\n5"), {}).value(),
              ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(read_sample_list(packed, folder_.put("l.txt", "140\n100\n")).value(), ElementsAre(4, 0));
  EXPECT_THAT(read_sample_list(packed, folder_.put("l.txt", "4\n")).error().message,
              HasSubstr("l.txt:1: there is no sample 4 here; there are 5, from 100 to 140"));
}

/// Samples with a field "weight" of any type, made of doubles.
class Weighing final : public testing::ForwardingSource {
 public:
  template <class T>
  Weighing(DType dtype, std::vector<T> values, std::vector<std::int64_t> shape = {})
      : ForwardingSource(make_synthetic(values.size(), 8).value()), bytes_(values.size()) {
    fields_ = ForwardingSource::fields();
    fields_.push_back(
        {.name = "weight", .content = Content::kValues, .dtype = dtype, .shape = std::move(shape)});
    for (std::size_t i = 0; i < values.size(); ++i) {
      bytes_[i].resize(sizeof(T));
      std::memcpy(bytes_[i].data(), &values[i], sizeof(T));
    }
  }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    out.item(1).bytes = bytes_.at(index);
    return ForwardingSource::read(index, out);
  }

 private:
  std::vector<SourceField> fields_;
  std::vector<std::vector<std::uint8_t>> bytes_;
};

TEST(WeightsInAField, AreReadOfEveryNumberType) {
  const auto read = [](const Weighing& source) { return weights_in_field(source, "weight").value(); };
  EXPECT_THAT(read({DType::kFloat32, std::vector<float>{0.5F, 2}}), ElementsAre(0.5, 2));
  EXPECT_THAT(read({DType::kFloat64, std::vector<double>{0.5, 2}, {1}}), ElementsAre(0.5, 2));
  EXPECT_THAT(read({DType::kUInt8, std::vector<std::uint8_t>{3, 255}}), ElementsAre(3, 255));
  EXPECT_THAT(read({DType::kInt8, std::vector<std::int8_t>{3, 127}}), ElementsAre(3, 127));
  EXPECT_THAT(read({DType::kInt16, std::vector<std::int16_t>{3, 300}}), ElementsAre(3, 300));
  EXPECT_THAT(read({DType::kInt32, std::vector<std::int32_t>{3, 70000}}), ElementsAre(3, 70000));
  EXPECT_THAT(read({DType::kInt64, std::vector<std::int64_t>{3, 1LL << 40}}), ElementsAre(3, 0x1p40));
}

TEST(WeightsInAField, AreRefusedAndNamed) {
  const auto said = [](const Source& source, const char* field) {
    const auto got = weights_in_field(source, field);
    EXPECT_FALSE(got);
    return got ? "" : got.error().message;
  };
  const Weighing floats(DType::kFloat32, std::vector<float>{1, -1, std::nanf("")});
  EXPECT_THAT(said(floats, "wight"), HasSubstr("has no field \"wight\"; fields: data, weight"));
  EXPECT_THAT(said(floats, "data"), HasSubstr("field \"data\" is not a weight"));
  EXPECT_THAT(said(floats, "weight"), HasSubstr("synthetic/1: its weight -1 is negative\n"
                                                "synthetic/2: its weight nan is not a number"));
  EXPECT_THAT(said(Weighing(DType::kFloat32, std::vector<float>{1}, {2}), "weight"),
              HasSubstr("is not a weight"));
  EXPECT_THAT(said(Weighing(DType::kFloat16, std::vector<std::uint16_t>{1}), "weight"),
              HasSubstr("is not a weight"));
  EXPECT_THAT(said(Weighing(DType::kFloat64, std::vector<float>{1}), "weight"),
              HasSubstr("field \"weight\" holds 4 bytes instead of 8"));
}

}  // namespace
}  // namespace headrace::server::source
