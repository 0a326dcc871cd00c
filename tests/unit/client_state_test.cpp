#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clientlib/client/resume.h"
#include "headrace/client.h"

namespace headrace {
namespace {

using testing::HasSubstr;

State example() {
  return {{3, 0, 17}, 64, 2, "train", {"d", "p", "s", "a"}};
}

StreamInfo stream_of(std::uint64_t samples, std::uint32_t batch_size) {
  StreamInfo info;
  info.name = "train";
  info.samples = samples;
  info.batch_size = batch_size;
  info.fingerprint = {"d", "p", "s", "a"};
  return info;
}

TEST(State, SurvivesJson) {
  const auto copy = State::from_json(example().to_json());
  ASSERT_TRUE(copy) << copy.error().to_string();
  EXPECT_EQ(copy->cursor, example().cursor);
  EXPECT_EQ(copy->batch_size, 64u);
  EXPECT_EQ(copy->world_size, 2u);
  EXPECT_EQ(copy->stream, "train");
  EXPECT_EQ(copy->fingerprint, example().fingerprint);
}

TEST(State, RefusesWhatIsNoState) {
  for (const char* text : {"", "[]", "{}", "{\"version\":1}", "nonsense"}) {
    const auto state = State::from_json(text);
    ASSERT_FALSE(state) << text;
    EXPECT_EQ(state.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(State, RefusesMembersThatItDoesNotKnow) {
  const auto error_of = [](const char* member, const char* replacement) {
    std::string text = example().to_json();
    text.replace(text.find(member), std::string(member).size(), replacement);
    const auto state = State::from_json(text);
    return state ? "accepted: " + text : state.error().to_string();
  };
  constexpr auto kRest =
      "; give what state() (Python: state_dict()) returned, and save values of your own beside it";
  EXPECT_EQ(error_of("\"version\"", "\"step\":7,\"version\""),
            std::string("INVALID_ARGUMENT: state: unknown member \"step\"") + kRest);
  EXPECT_EQ(error_of("\"origin\"", "\"orgin\":7,\"origin\""),
            std::string("INVALID_ARGUMENT: state: unknown member \"cursor.orgin\"") + kRest);
}

TEST(State, OfAnotherVersionIsRefusedWhateverItsMembersAre) {
  std::string later = example().to_json();
  later.replace(later.find("\"version\":1"), 11, "\"version\":2");
  for (const std::string& text :
       {later, std::string(R"({"version":2})"), std::string(R"({"version":2,"a":1})")})
    EXPECT_EQ(State::from_json(text).error().code, ErrorCode::kVersionMismatch) << text;
}

TEST(ResumeCursor, IsTheSameAtTheSameSizes) {
  EXPECT_EQ(client::resume_cursor(example(), stream_of(100'000, 64), 2), (Cursor{3, 0, 17}));
}

TEST(ResumeCursor, BecomesAnOriginAtOtherSizes) {
  EXPECT_EQ(client::resume_cursor(example(), stream_of(100'000, 64), 4), (Cursor{3, 17 * 64 * 2, 0}));
  EXPECT_EQ(client::resume_cursor(example(), stream_of(100'000, 32), 2), (Cursor{3, 17 * 64 * 2, 0}));
  State again = example();
  again.cursor = {3, 1000, 5};
  EXPECT_EQ(client::resume_cursor(again, stream_of(100'000, 64), 1), (Cursor{3, 1000 + 5 * 64 * 2, 0}));
}

TEST(ResumeCursor, AtTheEndGoesToTheNextEpoch) {
  EXPECT_EQ(client::resume_cursor(example(), stream_of(17 * 128, 64), 4), (Cursor{4, 0, 0}));
  EXPECT_EQ(client::resume_cursor(example(), stream_of(17 * 128 - 1, 64), 4), (Cursor{4, 0, 0}));
  EXPECT_EQ(client::resume_cursor(example(), stream_of(17 * 128 + 1, 64), 4), (Cursor{3, 17 * 128, 0}));
  State far = example();
  far.cursor.batch = std::uint64_t{1} << 48;
  far.batch_size = 1 << 24;
  far.world_size = 1 << 20;
  const auto refused = client::resume_cursor(far, stream_of(100'000, 64), 4);
  ASSERT_FALSE(refused) << "the cursor is beyond the epoch";
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST(ResumeCursor, SaysWhichPartOfTheStreamChanged) {
  const auto expect_part = [](Fingerprint now, const char* part) {
    StreamInfo info = stream_of(1000, 64);
    info.fingerprint = std::move(now);
    const auto cursor = client::resume_cursor(example(), info, 2);
    ASSERT_FALSE(cursor);
    EXPECT_EQ(cursor.error().code, ErrorCode::kFingerprintMismatch);
    EXPECT_THAT(cursor.error().message, HasSubstr(std::string("the ") + part + " "));
  };
  expect_part({"x", "p", "s", "a"}, "dataset");
  expect_part({"d", "x", "s", "a"}, "plan");
  expect_part({"d", "p", "x", "a"}, "seed");
  expect_part({"d", "p", "s", "x"}, "algorithm");
}

}  // namespace
}  // namespace headrace
