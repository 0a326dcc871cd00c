// Who waits for whom, in sentences, from two `stats`.
#include "server/status/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/status/report.h"

namespace headrace::server::status {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json client(const std::string& name, double waited, std::uint64_t lag = 0, std::uint64_t granted = 0) {
  return {{"client", name},
          {"lag", lag},
          {"sharing_lag", lag},
          {"granted", granted},
          {"wait_seconds", waited},
          {"waiting", false},
          {"next", {{"epoch", 0}, {"batch", 0}}}};
}

json stats(json clients, double blocked = 0, double busy = 0,
           json stages = {{"read", 0.0}, {"decode", 0.0}, {"transform", 0.0}}) {
  return {{"workers", 2},
          {"busy_seconds", busy},
          {"cpu_wait_seconds", 0},
          {"sharing", json::array()},
          {"streams",
           {{"train",
             {{"failed", nullptr},
              {"awaited_clients", 0},
              {"begins_in_seconds", nullptr},
              {"clients_wait_for_each_other", false},
              {"live", false},
              {"read_ahead", {{"wait", 0}}},
              {"blocked_seconds", blocked},
              {"busy_seconds", busy},
              {"granted", 0},
              {"decoded", 0},
              {"epoch", 0},
              {"progress", 0.25},
              {"samples_per_epoch", 1000},
              {"stage_seconds", std::move(stages)},
              {"clients", std::move(clients)}}}}}};
}

std::string said(const json& now, const json& before = json::object(), double seconds = 60) {
  return finding("train", now, before, seconds).text;
}

TEST(Findings, ATrainerThatTheServerWaitsForIsTheBottleneck) {
  const json now = stats(json::array({client("quick", 2), client("slow", 0.5, 12)}), 55);
  EXPECT_EQ(said(now, stats(json::array({client("quick", 1), client("slow", 0)}), 5)),
            "Data is no bottleneck: the server waited for trainer `slow` 83% of the last minute.");
}

TEST(Findings, BusyWorkersAreTheBottleneckWithWhatTheyDoMost) {
  const json stages = {{"read", 2.0}, {"decode", 21.0}, {"transform", 7.0}};
  const json now = stats(json::array({client("a", 12)}), 0, 29, stages);
  EXPECT_EQ(
      said(now, json::object(), 15),
      "The bottleneck is decoding: trainer `a` waited 80% of the last 15 s, and the 2 workers were busy "
      "97% of the time, 70% of it decoding. Give the server more CPUs, or pack the dataset as tiles "
      "(`headrace pack`).");
  EXPECT_EQ(finding("train", now, json::object(), 15).severity, Severity::kProblem);
  json more_cpus = now;
  more_cpus["cpus"] = 8;
  EXPECT_THAT(said(more_cpus, json::object(), 15),
              HasSubstr("Raise `server.threads`: 2 of 8 CPUs have a worker, or pack"));
  // Before, they did something else.
  const json before =
      stats(json::array({client("a", 0)}), 0, 0, {{"read", 0.0}, {"decode", 20.0}, {"transform", 0.0}});
  EXPECT_THAT(said(now, before, 15), HasSubstr("The bottleneck is transforming"));
}

TEST(Findings, ACacheOfDecodedImagesIsProposedWithItsSize) {
  json now =
      stats(json::array({client("a", 12)}), 0, 29, {{"read", 0.0}, {"decode", 9.0}, {"transform", 1.0}});
  now["streams"]["train"]["decoded_cache_bytes"] = 2'140'000'000;
  now["memory_available"] = 24'000'000'000;
  EXPECT_THAT(said(now, json::object(), 15),
              HasSubstr("or keep decoded images in memory: the source's `cache: {decoded: 2.2GB}` fits into "
                        "the 24.00 GB that are available."));
  now["streams"]["train"]["decoded_cache_bytes"] = 770'010'000'000;
  EXPECT_THAT(said(now, json::object(), 15), HasSubstr("would need 770.01 GB, and 24.00 GB are available."));
  now["streams"]["train"]["decoded_cache_bytes"] = 550'000;
  EXPECT_THAT(said(now, json::object(), 15), HasSubstr("`cache: {decoded: 0.1GB}`"));
  now["streams"]["train"]["decoded_cache_bytes"] = 2'140'000'000;
  now["memory_available"] = 1'000'000'000;
  EXPECT_THAT(said(now, json::object(), 15),
              HasSubstr("or pack the dataset as tiles (`headrace pack`); a cache of all decoded images would "
                        "need 2.14 GB, and 1.00 GB are available."));
}

TEST(Findings, WorkersThatOnlyMovePixelsHaveNoStages) {
  EXPECT_THAT(said(stats(json::array({client("a", 30)}), 0, 119)),
              HasSubstr("The bottleneck is the workers: trainer `a` waited 50% of the last minute"));
}

TEST(Findings, IdleWorkersAreNotTheBottleneck) {
  const std::string text = said(stats(json::array({client("a", 30)}), 0, 20));
  EXPECT_THAT(text, HasSubstr("busy for only 17%"));
  EXPECT_THAT(text, HasSubstr("`ring.prefetch`"));
}

TEST(Findings, WaitsForReadsAreNamed) {
  json now = stats(json::array({client("a", 30)}), 0, 20);
  now["streams"]["train"]["read_ahead"]["wait"] = 5;
  EXPECT_THAT(said(now), HasSubstr("they wait for reads. Raise `io.threads` of the stream's source"));
}

TEST(Findings, ASlowFeedIsTheBottleneck) {
  json now = stats(json::array({client("a", 30)}));
  now["streams"]["train"]["live"] = true;
  EXPECT_EQ(
      said(now),
      "The bottleneck is the process that feeds the stream: trainer `a` waited 50% of the last minute.");
}

TEST(Findings, BusyWorkersComeBeforeAClientThatIsBehind) {
  json now = stats(json::array({client("ahead", 40), client("behind", 0, 3)}), 0, 119);
  now["streams"]["train"]["clients_wait_for_each_other"] = true;
  now["streams"]["train"]["clients"][1]["next"]["batch"] = 7;
  EXPECT_THAT(said(now), HasSubstr("The bottleneck is the workers"));
  now["streams"]["train"]["clients"][0]["waits_for_one_behind"] = true;
  EXPECT_THAT(said(now), HasSubstr("It is ahead and yields to client `behind`"));
}

TEST(Findings, KeepingPaceIsFine) {
  const Finding found = finding("train", stats(json::array({client("a", 3)}), 20, 30), json::object(), 60);
  EXPECT_EQ(found.severity, Severity::kFine);
  EXPECT_EQ(found.text, "Server and trainers keep pace: no trainer waited more than 5% of the last minute.");
}

TEST(Findings, OtherProgramsOnTheCpusComeBeforeAnyStage) {
  json now =
      stats(json::array({client("a", 12)}), 0, 29, {{"read", 2.0}, {"decode", 21.0}, {"transform", 7.0}});
  now["cpu_wait_seconds"] = 12;
  EXPECT_EQ(
      said(now, json::object(), 15),
      "The bottleneck is the CPUs: trainer `a` waited 80% of the last 15 s, and for 40% of their time, the "
      "workers waited for a CPU, because other threads used it or a CPU limit applied. Stop other programs, "
      "raise the limit, or lower `server.threads`.");
  now["cpus"] = 1;
  EXPECT_THAT(said(now, json::object(), 15),
              HasSubstr("applied. The server has 2 workers for 1 CPU: lower `server.threads`."));
  now["cpu_wait_seconds"] = 7;
  EXPECT_THAT(said(now, json::object(), 15), HasSubstr("The bottleneck is decoding"));
}

TEST(Findings, AStartSaysLittle) {
  const json now = stats(json::array({client("a", 1.5)}), 0, 2);
  EXPECT_EQ(said(now, json::object(), 1.9),
            "It is too early to name a bottleneck. Look again in a few seconds.");
  EXPECT_THAT(said(now, json::object(), 2), HasSubstr("`a` waited 75% of the last 2 s"));
}

TEST(Findings, AReasonThatOneTrainerWaitsForAnotherComesFirst) {
  json now = stats(json::array({client("ahead", 40), client("behind", 0, 3)}), 0, 60);
  now["streams"]["train"]["clients_wait_for_each_other"] = true;
  now["streams"]["train"]["clients"][1]["next"]["batch"] = 7;
  EXPECT_EQ(said(now),
            "Trainer `ahead` waited 67% of the last minute. The stream waits for client `behind`, 3 batches "
            "behind (sharing.on_lag: wait), which must call next(), release its batches, or exit.");
}

TEST(Findings, StreamsWithoutTrainersOrWithAnErrorSaySo) {
  EXPECT_EQ(said(stats(json::array())), "No trainer is attached.");
  json awaiting = stats(json::array({client("a", 0)}));
  awaiting["streams"]["train"]["awaited_clients"] = 1;
  EXPECT_EQ(said(awaiting), "The stream begins once 1 more client has called next() (sharing.wait_for).");
  awaiting["streams"]["train"]["failed"] = {{"code", "BAD_SAMPLE"},
                                            {"message", "stream `train` stopped: a.jpg is empty"}};
  EXPECT_EQ(said(awaiting), "stream `train` stopped: a.jpg is empty");
}

constexpr std::uint64_t kSecond = 1'000'000'000;

History::Entries entries(std::initializer_list<std::pair<std::uint64_t, json>> all) {
  History::Entries out;
  for (const auto& [second, stats] : all)
    out.push_back(std::make_shared<const History::Entry>(second * kSecond, stats));
  return out;
}

TEST(Report, RatesAreOfTheTimeWithTheSameClients) {
  const json one = stats(json::array({client("a", 0, 0, 100)}));
  const json two = stats(json::array({client("a", 2, 0, 200), client("b", 1, 0, 50)}));
  const json now = stats(json::array({client("a", 3, 0, 400), client("b", 6, 0, 250)}));
  const json made = report(now, 120 * kSecond, entries({{60, one}, {110, two}, {115, two}}));
  const json& stream = made["streams"]["train"];
  EXPECT_EQ(stream["seconds"], 10);
  EXPECT_EQ(stream["clients"][0]["samples_per_second"], 20);
  EXPECT_EQ(stream["clients"][1]["samples_per_second"], 20);
  EXPECT_EQ(stream["clients"][1]["waited"], 0.5);
}

TEST(Report, TheTimeLeftIsThatOfTheWholeEpoch) {
  json before = stats(json::array({client("rank 0", 0), client("rank 1", 0)})), now = before;
  now["streams"]["train"]["epoch"] = 1;  // from 0.75 of an epoch to 1.25
  before["streams"]["train"]["progress"] = 0.75;
  const auto left = [&] {
    return report(now, 20 * kSecond, entries({{0, before}}))["streams"]["train"]["seconds_left"];
  };
  EXPECT_EQ(left(), 30);
  now["streams"]["train"]["epoch"] = 0;  // a client began again
  EXPECT_TRUE(left().is_null());
}

TEST(Report, AClientThatBeganAgainIsMeasuredSinceThen) {
  const auto at = [](std::uint64_t granted) { return stats(json::array({client("a", 0, 0, granted)})); };
  const json made = report(at(90), 60 * kSecond, entries({{0, at(10)}, {20, at(500)}, {40, at(50)}}));
  EXPECT_EQ(made["streams"]["train"]["seconds"], 20);
  EXPECT_EQ(made["streams"]["train"]["clients"][0]["samples_per_second"], 2);
}

TEST(Report, TheTimeBeforeAClientLeftDoesNotCount) {
  const json one = stats(json::array({client("a", 0)}));
  const json two = stats(json::array({client("a", 0), client("b", 0)}));
  const json made = report(one, 60 * kSecond, entries({{0, one}, {20, two}, {40, one}}));
  EXPECT_EQ(made["streams"]["train"]["seconds"], 20);
}

TEST(Report, AClientThatJustCameIsMeasuredSinceTheLastEntry) {
  const json now = stats(json::array({client("a", 0, 0, 100), client("new", 0, 0, 30)}));
  const json before = stats(json::array({client("a", 0, 0, 40)}));
  const json made = report(now, 63 * kSecond, entries({{0, json::object()}, {60, before}}));
  EXPECT_EQ(made["streams"]["train"]["seconds"], 3);
  EXPECT_EQ(made["streams"]["train"]["clients"][0]["samples_per_second"], 20);
  EXPECT_EQ(made["streams"]["train"]["clients"][1]["samples_per_second"], 10);
}

TEST(Report, StreamsThatShareRowsHaveOneSharingFactor) {
  json now = stats(json::array());
  json& streams = now["streams"];
  streams["other"] = streams["alone"] = streams["train"];
  streams["train"].update({{"decoded", 10}, {"granted", 400}});
  streams["other"].update({{"decoded", 390}, {"granted", 400}});
  streams["alone"].update({{"decoded", 100}, {"granted", 90}});
  now["sharing"] = {{{"streams", {"other", "train"}}, {"sharing_factor", 2.0}}};
  const json made = report(now, 60 * kSecond, entries({{0, json::object()}}));
  EXPECT_EQ(made["streams"]["train"]["sharing_factor"], 2.0);
  EXPECT_EQ(made["streams"]["other"]["sharing_factor"], 2.0);
  EXPECT_EQ(made["streams"]["alone"]["sharing_factor"], 0.9);
  streams["alone"]["granted"] = 0;
  const json unused = report(now, 60 * kSecond, entries({{0, json::object()}}));
  EXPECT_TRUE(unused["streams"]["alone"]["sharing_factor"].is_null()) << "decoded ahead, and nothing granted";
}

TEST(History, KeepsAnEntryThatIsAMinuteOldAndYoungerOnes) {
  History history(0, json::object());
  for (std::uint64_t second = 1; second <= 200; ++second)
    if (history.is_due(second * kSecond)) history.add(second * kSecond, {{"second", second}});
  const History::Entries kept = history.entries();
  EXPECT_EQ(kept.front()->time_ns, 140 * kSecond);
  EXPECT_EQ(kept.back()->stats, json({{"second", 200}}));
  EXPECT_EQ(kept.size(), 13U);
}

}  // namespace
}  // namespace headrace::server::status
