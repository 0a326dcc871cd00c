#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "clientlib/wire/protocol.h"

namespace headrace::wire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

StreamInfo example_stream() {
  StreamInfo info;
  info.name = "train";
  info.delivery = Delivery::kShard;
  info.samples = 1'281'167;
  info.batch_size = 64;
  info.last = LastBatch::kPad;
  info.shuffle = false;
  info.fields = {{"image", DType::kFloat32, FieldKind::kDense, {3, 224, 224}, 0},
                 {"tokens", DType::kInt32, FieldKind::kRagged, {}, 4096}};
  info.classes = {"Käse", "b c"};
  info.fingerprint = {"d1", "p2", "s3", "a4"};
  return info;
}

template <class T>
T round_trip(const T& value) {
  const auto parsed = parse<T>(json::parse(to_json(value).dump()));
  EXPECT_TRUE(parsed) << parsed.error().to_string();
  return parsed.value_or(T{});
}

template <class T>
void expect_bad(json body, std::string_view member) {
  const auto parsed = parse<T>(body);
  ASSERT_FALSE(parsed) << body;
  EXPECT_EQ(parsed.error().code, ErrorCode::kBadMessage);
  EXPECT_THAT(parsed.error().message, HasSubstr(std::string("'") + std::string(member) + "'"));
}

DeviceImage example_image() {
  return {.field = 1,
          .height = 40,
          .width = 30,
          .channels = 3,
          .moves = {{.stage = 2,
                     .height = 32,
                     .width = 24,
                     .top = -4,
                     .left = -5,
                     .rows = 17,
                     .columns = 15,
                     .padding = pixels::PaddingMode::kSymmetric,
                     .fill = {1, 2, 255}},
                    {.kind = Move::Kind::kVerticalFlip, .stage = 3, .height = 32, .width = 24, .p = 0.3}},
          .color_steps = 3,
          .contrasts = 2,
          .layout = pixels::PixelLayout::kNhwc,
          .mean = {0.1307, 1.0 / 3, 0},
          .std = {0.3081, 0.1, 1e-9},
          .erased = {0.5}};
}

Residence example_residence() {
  return {.upload = "train.resident", .seed = ~std::uint64_t{0} >> 1, .image = example_image()};
}

TEST(WireFrame, RequestRoundTrips) {
  const auto request = decode_request(encode(Request{7, "open", {{"stream", "train"}}}));
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(request->id, 7);
  EXPECT_EQ(request->op, "open");
  EXPECT_EQ(request->body, (json{{"stream", "train"}}));
}

TEST(WireFrame, ReplyCarriesAValueOrANamedError) {
  const auto good = decode_reply(encode(Reply{1, json{{"seek", 3}}}));
  ASSERT_TRUE(good && good->body);
  EXPECT_EQ(*good->body, (json{{"seek", 3}}));
  const auto bad = decode_reply(encode(Reply{2, fail(ErrorCode::kNoSuchStream, "no stream 'x'")}));
  ASSERT_TRUE(bad);
  ASSERT_FALSE(bad->body);
  EXPECT_EQ(bad->body.error().code, ErrorCode::kNoSuchStream);
  EXPECT_EQ(bad->body.error().message, "no stream 'x'");
}

TEST(WireFrame, ReplyWithBothOrNeitherIsRefused) {
  EXPECT_EQ(decode_reply(R"({"v":1,"id":1})").error().code, ErrorCode::kBadMessage);
  EXPECT_EQ(decode_reply(R"({"v":1,"id":1,"ok":{},"error":{"code":"TIMEOUT","message":""}})").error().code,
            ErrorCode::kBadMessage);
}

TEST(WireFrame, AnotherVersionIsNamedWithOurs) {
  const auto request = decode_request(R"({"v":9,"id":1,"op":"hello","body":{}})");
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(request.error().message, HasSubstr("version 9"));
  EXPECT_THAT(request.error().message, HasSubstr("version 1"));
}

TEST(WireFrame, OversizedFrameIsRefusedWithBothSizes) {
  const std::string frame = encode(Request{1, "open", {{"stream", std::string(kMaxFrame, 'x')}}});
  const auto request = decode_request(frame);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, ErrorCode::kBadMessage);
  EXPECT_THAT(request.error().message, HasSubstr("65536"));
}

TEST(WireFrame, DeepNestingIsRefusedAtTheBound) {
  const auto nested = [](int levels) {
    return R"({"v":1,"id":1,"op":"x","body":{"a":)" + std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']') + "}}";
  };
  EXPECT_TRUE(decode_request(nested(kMaxDepth - 2)));
  const auto request = decode_request(nested(kMaxDepth - 1));
  ASSERT_FALSE(request);
  EXPECT_THAT(request.error().message, HasSubstr("deeper than 16"));
  EXPECT_EQ(decode_request(nested(20'000)).error().code, ErrorCode::kBadMessage);
}

TEST(WireFrame, TextThatIsNotUtf8StillMakesAFrame) {
  const auto request = decode_request(encode(Request{1, "open", {{"stream", "\xff\xfe"}}}));
  EXPECT_TRUE(request) << request.error().to_string();
}

TEST(WireBody, OpenRequestRoundTrips) {
  OpenRequest open;
  open.stream = "train";
  open.group = "job-1";
  open.rank = 3;
  open.world_size = 8;
  open.client = "trainer";
  open.pid = 1234;
  open.join = Join::kEpochStart;
  open.start = Cursor{1, 2, 3};
  open.position = Cursor{4, 5, 6};
  open.resume_server = true;
  open.fingerprint = Fingerprint{"a", "b", "c", "d"};
  const OpenRequest copy = round_trip(open);
  EXPECT_EQ(copy.stream, "train");
  EXPECT_EQ(copy.group, "job-1");
  EXPECT_EQ(copy.rank, 3u);
  EXPECT_EQ(copy.world_size, 8u);
  EXPECT_EQ(copy.client, "trainer");
  EXPECT_EQ(copy.pid, 1234);
  EXPECT_EQ(copy.join, Join::kEpochStart);
  EXPECT_EQ(copy.start, open.start);
  EXPECT_EQ(copy.position, open.position);
  EXPECT_TRUE(copy.resume_server);
  EXPECT_EQ(copy.fingerprint, open.fingerprint);
}

TEST(WireBody, OpenReplyRoundTrips) {
  const OpenReply copy = round_trip(OpenReply{"tok", example_stream()});
  EXPECT_EQ(copy.token, "tok");
  EXPECT_EQ(copy.stream.fields, example_stream().fields);
  EXPECT_EQ(copy.stream.classes, example_stream().classes);
  EXPECT_EQ(copy.stream.fingerprint, example_stream().fingerprint);
  EXPECT_EQ(copy.stream.delivery, Delivery::kShard);
  EXPECT_EQ(copy.stream.last, LastBatch::kPad);
  EXPECT_FALSE(copy.stream.shuffle);
}

TEST(WireBody, AttachReplyRoundTrips) {
  const AttachReply copy = round_trip(AttachReply{5, 2, {1, 0, 4}, {1, 0, 9}, 100, 200, 4, "s-1", 7});
  EXPECT_EQ(copy.lane, 5u);
  EXPECT_EQ(copy.seek, 2u);
  EXPECT_EQ(copy.start, (Cursor{1, 0, 4}));
  EXPECT_EQ(copy.cursor, (Cursor{1, 0, 9}));
  EXPECT_EQ(copy.length, 100u);
  EXPECT_EQ(copy.epoch_length, 200u);
  EXPECT_EQ(copy.max_leases, 4u);
  EXPECT_EQ(copy.session, "s-1");
  EXPECT_EQ(copy.batches_behind, 7u);
}

TEST(WireBody, CursorsAndSamplesRoundTrip) {
  const CursorGetReply cursors =
      round_trip(CursorGetReply{2, {0, 1, 2}, std::vector{LaneCursor{1, "c", true, {1, 1, 1}, {2, 2, 2}}}});
  ASSERT_EQ(cursors.lanes.size(), 1u);
  EXPECT_EQ(cursors.lanes[0].granted, (Cursor{1, 1, 1}));
  EXPECT_EQ(cursors.lanes[0].consumed, (Cursor{2, 2, 2}));
  EXPECT_TRUE(cursors.lanes[0].attached);
  const SampleReply sample =
      round_trip(SampleReply{9, "n/a.jpg", true, -3, example_stream().fields, json::array({1})});
  EXPECT_EQ(sample.name, "n/a.jpg");
  EXPECT_EQ(sample.label, -3);
  EXPECT_TRUE(sample.replaced);
  EXPECT_EQ(sample.parameters, json::array({1}));
  EXPECT_EQ(round_trip(HelloReply{"0.1.0", 1, ~std::uint64_t{0}, 12}).instance, ~std::uint64_t{0});
  EXPECT_EQ(round_trip(CursorSetReply{4, {1, 2, 3}, 5, 6}).epoch_length, 6u);
  EXPECT_EQ(round_trip(FailureRequest{"name"}).session, "name");
  EXPECT_EQ(round_trip(FailureReply{"no file x.jpg"}).why, "no file x.jpg");
}

TEST(WireBody, EachMissingMemberIsNamed) {
  const json whole = to_json(AttachReply{5, 2, {1, 0, 4}, {1, 0, 9}, 100, 200, 4, "s-1"});
  for (const auto& [name, value] : whole.items()) {
    json body = whole;
    body.erase(name);
    expect_bad<AttachReply>(body, name);
    body[name] = json::array({nullptr});
    const auto parsed = parse<AttachReply>(body);
    ASSERT_FALSE(parsed) << name;
    EXPECT_EQ(parsed.error().code, ErrorCode::kBadMessage);
  }
}

TEST(WireBody, IntegersAndStringsHaveBounds) {
  const json cursor = to_json(Cursor{1, 2, 3});
  for (const json& bad :
       {json(-1), json(1.5), json("1"), json(std::uint64_t{1} << 60), json(nullptr), json(true)}) {
    json body = cursor;
    body["batch"] = bad;
    expect_bad<Cursor>(body, "batch");
  }
  json open = to_json(OpenRequest{});
  open["rank"] = 1;
  expect_bad<OpenRequest>(open, "rank");
  open["rank"] = 0;
  open["world_size"] = 0;
  expect_bad<OpenRequest>(open, "world_size");
  open["world_size"] = 4294967296u;
  expect_bad<OpenRequest>(open, "world_size");
  open["world_size"] = 1;
  open["stream"] = std::string(201, 's');
  expect_bad<OpenRequest>(open, "stream");
  open["stream"] = "a\nb";
  expect_bad<OpenRequest>(open, "stream");
  open["stream"] = "s";
  open["join"] = "later";
  expect_bad<OpenRequest>(open, "join");
}

TEST(WireBody, FieldShapesHaveBounds) {
  json field = to_json(FieldSpec{"f", DType::kUInt8, FieldKind::kDense, {1}, 0});
  field["shape"] = {1, 1, 1, 1, 1, 1, 1};
  expect_bad<FieldSpec>(field, "shape");
  field["shape"] = {-1};
  expect_bad<FieldSpec>(field, "shape");
  field["shape"] = {1};
  field["dtype"] = "float33";
  expect_bad<FieldSpec>(field, "dtype");
}

/// Any bytes give a value or a named error; frames that decode can be encoded again.
TEST(WireFrame, GarbageGivesNamedErrorsAndNothingElse) {
  std::mt19937_64 random(20261121);
  const std::string seed = encode(Request{7, "open", to_json(OpenRequest{})});
  const std::string seed_reply = encode(Reply{7, to_json(OpenReply{"t", example_stream()})});
  int refused = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::string frame = round % 3 == 0 ? seed : seed_reply;
    if (round % 3 == 2) {
      frame.resize(random() % 64);
      for (char& c : frame) c = static_cast<char>(random());
    }
    for (auto edits = random() % 4; edits > 0 && !frame.empty(); --edits) {
      const auto at = random() % frame.size();
      switch (random() % 3) {
        case 0:
          frame[at] = static_cast<char>(random());
          break;
        case 1:
          frame.erase(at, random() % 8);
          break;
        default:
          frame.insert(at, frame.substr(random() % frame.size(), random() % 16));
          break;
      }
    }
    const auto check = [&refused](const Error& error) {
      ++refused;
      EXPECT_TRUE(error.code == ErrorCode::kBadMessage || error.code == ErrorCode::kVersionMismatch)
          << error.to_string();
      EXPECT_FALSE(error.message.empty());
    };
    if (const auto request = decode_request(frame)) {
      EXPECT_TRUE(decode_request(encode(*request)));
      if (const auto open = parse<OpenRequest>(request->body); !open) check(open.error());
    } else {
      check(request.error());
    }
    if (const auto reply = decode_reply(frame)) {
      if (reply->body)
        if (const auto open = parse<OpenReply>(*reply->body); !open) check(open.error());
    } else {
      check(reply.error());
    }
  }
  EXPECT_GT(refused, 10'000);
}

TEST(WireBody, AResidentSetRoundTrips) {
  const Residence residence = example_residence();
  EXPECT_EQ(to_json(round_trip(residence)), to_json(residence));
  StreamInfo info = example_stream();
  EXPECT_FALSE(round_trip(info).residence);
  info.residence = residence;
  ASSERT_TRUE(round_trip(info).residence);
  EXPECT_EQ(to_json(*round_trip(info).residence), to_json(residence));
}

TEST(WireBody, AnImageForTheDeviceRoundTrips) {
  EXPECT_EQ(round_trip(example_image()), example_image());
}

TEST(WireBody, AMalformedImageForTheDeviceIsRefusedByMember) {
  const json good = to_json(example_image());
  for (const auto& [member, value] : std::vector<std::pair<std::string, json>>{{"height", 1LL << 32},
                                                                               {"width", "8"},
                                                                               {"channels", 4},
                                                                               {"color_steps", 9},
                                                                               {"contrasts", 9},
                                                                               {"layout", "HWC"},
                                                                               {"mean", {1, 2, 3, 4}},
                                                                               {"std", "1"},
                                                                               {"field", -1}}) {
    json body = good;
    body[member] = value;
    expect_bad<DeviceImage>(body, member);
  }
  json moves = good;
  moves["moves"][0]["padding"] = "wrap";
  expect_bad<DeviceImage>(moves, "padding");
  moves = good;
  moves["moves"][1]["fill"] = {1, 2, 256};
  expect_bad<DeviceImage>(moves, "fill");
  moves = good;
  moves["moves"] = std::vector<json>(9, good["moves"][0]);
  expect_bad<DeviceImage>(moves, "moves");
  json residence = to_json(example_residence());
  residence["seed"] = -1;
  expect_bad<Residence>(residence, "seed");
}

}  // namespace
}  // namespace headrace::wire
