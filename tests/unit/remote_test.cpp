// Reading over HTTP from a real server on loopback: ranges, faults that pass and faults that last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "server/remote/remote.h"
#include "server/remote/url.h"
#include "tests/remote_fixture.h"

namespace headrace::server::remote {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST_F(RemoteTest, RangesAreReadOverOneConnection) {
  const auto remote = this->remote();
  const auto known = remote->stat(url());
  ASSERT_TRUE(known) << known.error().message;
  EXPECT_EQ(known->bytes, content_.size());
  EXPECT_EQ(known->tag, "\"1\"");
  EXPECT_TRUE(known->ranges);
  EXPECT_EQ(read(*remote, url(), *known, 100, 50), content_.substr(100, 50));
  EXPECT_EQ(read(*remote, url(), *known, 0, content_.size()), content_);
  EXPECT_EQ(read(*remote, url(), *known, 5, 0), "");
  const auto calls = server_->calls();
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[1].range, "bytes=100-149");
  EXPECT_EQ(calls[1].if_match, "\"1\"");
  EXPECT_EQ(calls[0].port, calls[2].port) << "the connection was reused";
  EXPECT_EQ(remote->counts().requests, 3U);
  EXPECT_EQ(remote->counts().retries, 0U);
  EXPECT_EQ(remote->counts().bytes, 1 + 50 + content_.size());
}

TEST_F(RemoteTest, ACutReplyIsContinued) {
  const auto remote = this->remote();
  const Stat known{content_.size(), "\"1\"", true};
  server_->fail_next({.cut = 10});
  server_->fail_next({.cut = 0});
  EXPECT_EQ(read(*remote, url(), known, 100, 50), content_.substr(100, 50));
  EXPECT_THAT(ranges(), ElementsAre("bytes=100-149", "bytes=110-149", "bytes=110-149"));
  EXPECT_EQ(remote->counts().retries, 2U);
  server_->fail_next({.cut = 1000});
  EXPECT_EQ(fetch(*remote, url()), content_);
  EXPECT_THAT(ranges(), ElementsAre("", "bytes=1000-" + std::to_string(content_.size() - 1)));
  server_->put("/untagged", {.content = content_, .etag = ""});
  server_->fail_next({.cut = 1000});
  EXPECT_EQ(fetch(*remote, url("/untagged")), content_);
  EXPECT_THAT(ranges(), ElementsAre("", ""))
      << "nothing shows that it is the same, so it is read from the beginning";
}

TEST_F(RemoteTest, ARangeOfWhatHasNoVersionBeginsAnewOnceItWasCut) {
  server_->put("/untagged", {.content = content_, .etag = ""});
  server_->fail_next({.cut = 10});
  EXPECT_EQ(read(*remote(), url("/untagged"), {content_.size(), "", true}, 100, 50),
            content_.substr(100, 50));
  EXPECT_THAT(ranges(), ElementsAre("bytes=100-149", "bytes=100-149"));
  EXPECT_THAT(read(*remote(), url("/untagged"), {content_.size(), "\"1\"", true}, 100, 50),
              HasSubstr("it was changed"))
      << "it had a version";
}

TEST_F(RemoteTest, AReplyThatACutWouldNotShowInIsRefused) {
  server_->put("/list.csv", {.content = content_, .sized = false});
  EXPECT_THAT(fetch(*remote(), url("/list.csv")),
              HasSubstr("/list.csv: the server does not send its size, so truncation could not be detected"));
  server_->put("/empty.csv", {.content = "", .sized = false});
  EXPECT_THAT(fetch(*remote(), url("/empty.csv")), HasSubstr("so truncation could not be detected"))
      << "cut at once";
}

TEST_F(RemoteTest, AbsurdPausesAreNotKept) {
  options_.attempts = 1;  // it might overflow, which sanitizers would report
  server_->fail_next({.status = 503, .headers = "Retry-After: 99999999999999999\r\n"});
  EXPECT_THAT(fetch(*remote(), url(), 1'000'000, ErrorCode::kTransientIo), HasSubstr("503"));
}

TEST_F(RemoteTest, ProgressIsNoAttemptAndBeginningAnewIsNoProgress) {
  const std::string large(5 << 20, 'x');
  const std::size_t cut = (1 << 20) + 10;
  options_.attempts = 2;
  server_->put("/large", {.content = large});
  server_->fail_next({.cut = cut}, 4);
  EXPECT_EQ(fetch(*remote(), url("/large"), large.size()), large);
  server_->put("/large", {.content = large, .etag = ""});
  server_->fail_next({.cut = cut}, 4);
  EXPECT_THAT(fetch(*remote(), url("/large"), large.size(), ErrorCode::kTransientIo),
              HasSubstr("(after 2 attempts)"));
}

TEST_F(RemoteTest, WhatMayPassIsTriedAgainAndWhatLastsIsNot) {
  const auto remote = this->remote();
  for (const int status : {408, 429, 500, 502, 503, 504}) server_->fail_next({.status = status});
  options_.attempts = 7;
  EXPECT_EQ(fetch(*this->remote(), url()), content_);
  EXPECT_EQ(server_->calls().size(), 7U);
  server_->fail_next({.status = 503}, 6);
  EXPECT_THAT(
      fetch(*remote, url(), 1'000'000, ErrorCode::kTransientIo),
      HasSubstr("/file: the server answers 503 (after 6 attempts); check the server and the network"));
  EXPECT_EQ(server_->calls().size(), 6U);
  for (const int status : {400, 401, 403, 404, 410, 418}) {
    server_->fail_next({.status = status});
    EXPECT_THAT(fetch(*remote, url()), HasSubstr("the server answers " + std::to_string(status)));
    EXPECT_EQ(server_->calls().size(), 1U) << status;
  }
  EXPECT_THAT(fetch(*remote, url("/none")), HasSubstr("/none: the server answers 404: it is not there"));
  const auto none = remote->find(url("/none"));
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
  EXPECT_THAT(remote->stat(url("/none")).error().message,
              HasSubstr("404: it is not there; correct the path"));
}

TEST_F(RemoteTest, AServerThatIsNotThereIsATransientError) {
  options_.attempts = 2;
  EXPECT_THAT(fetch(*remote(), "http://127.0.0.1:1/file", 10, ErrorCode::kTransientIo),
              AllOf(HasSubstr("http://127.0.0.1:1/file: "),
                    HasSubstr("Couldn't connect to server (after 2 attempts)")));
}

TEST_F(RemoteTest, AnObjectThatChangedIsNamedAndNeverMixed) {
  const auto remote = this->remote();
  const Stat known{content_.size(), "\"1\"", true};
  const auto changed = [&](WebServer::File file) {
    server_->put("/file", std::move(file));
    EXPECT_THAT(read(*remote, url(), known, 100, 50), HasSubstr("changed since the dataset was opened"));
    EXPECT_EQ(server_->calls().size(), 1U);
  };
  changed({.content = content_, .etag = "\"2\""});
  changed({.content = content_, .etag = "\"2\"", .heeds_if_match = false});
  changed({.content = content_ + "more"});
  changed({.content = content_.substr(0, 120)});
  server_->put("/file", {.content = content_.substr(0, 50)});
  EXPECT_THAT(read(*remote, url(), known, 100, 50),
              HasSubstr("it was truncated since the dataset was opened"));
}

TEST_F(RemoteTest, WeakTagsAreComparedHere) {
  server_->put("/file", {.content = content_, .etag = "W/\"1\""});
  const auto remote = this->remote();
  const auto known = remote->stat(url());
  ASSERT_TRUE(known);
  server_->calls();
  EXPECT_EQ(read(*remote, url(), *known, 3, 4), content_.substr(3, 4));
  EXPECT_EQ(server_->calls().at(0).if_match, "") << "it would match nothing";
  server_->put("/file", {.content = content_, .etag = "W/\"2\""});
  EXPECT_THAT(read(*remote, url(), *known, 3, 4), HasSubstr("changed since"));
}

TEST_F(RemoteTest, AServerWithoutRangesGivesWholeFilesAlone) {
  server_->put("/file", {.content = content_, .ranges = false});
  const auto remote = this->remote();
  const auto known = remote->stat(url());
  ASSERT_TRUE(known);
  EXPECT_EQ(known->bytes, content_.size());
  EXPECT_FALSE(known->ranges);
  EXPECT_EQ(fetch(*remote, url()), content_);
  EXPECT_EQ(read(*remote, url(), *known, 0, content_.size()), content_);
  EXPECT_THAT(read(*remote, url(), *known, 1, 5), HasSubstr("does not support range requests"));
  server_->put("/empty", {.content = ""});
  EXPECT_EQ(remote->stat(url("/empty"))->bytes, 0U);
  EXPECT_EQ(fetch(*remote, url("/empty")), "");
}

TEST_F(RemoteTest, AnAnswerToAnotherQuestionIsRefused) {
  const auto remote = this->remote();
  const Stat known{content_.size(), "\"1\"", true};
  for (const char* range : {"bytes 0-9/10", "bytes 7-9", "items 3-6/9", "bytes 3-2/9"}) {
    server_->put("/file", {.content = content_, .content_range = range});
    EXPECT_THAT(read(*remote, url(), known, 3, 4), HasSubstr("the server sent bytes " + std::string(range)));
  }
}

TEST_F(RemoteTest, AFileAboveTheLimitIsNotRead) {
  const auto remote = this->remote();
  EXPECT_THAT(fetch(*remote, url(), 100, ErrorCode::kBadSample),
              HasSubstr("bytes or more, the limit is 100"));
  EXPECT_EQ(fetch(*remote, url(), content_.size()), content_);
}

TEST_F(RemoteTest, RedirectsAreFollowedToHttpAndNotForever) {
  const auto remote = this->remote();
  server_->fail_next({.status = 302, .headers = "Location: /file\r\n"});
  EXPECT_EQ(fetch(*remote, url("/moved")), content_);
  server_->fail_next({.status = 302, .headers = "Location: /file\r\n"}, 10);
  EXPECT_THAT(fetch(*remote, url("/moved")), HasSubstr("redirects"));
  server_->begin_anew();
  server_->fail_next({.status = 302, .headers = "Location: file:///etc/passwd\r\n"});
  EXPECT_THAT(fetch(*remote, url("/moved")), HasSubstr("\"file\" not supported"));
}

TEST_F(RemoteTest, AReplyThatStandsStillIsGivenUp) {
  options_.transfers.stall = std::chrono::seconds(1);
  options_.attempts = 1;
  server_->fail_next({.cut = 5, .stall = true});
  EXPECT_THAT(fetch(*remote(), url(), 1'000'000, ErrorCode::kTransientIo), HasSubstr("too slow"));
}

TEST_F(RemoteTest, AStopEndsAReadThatIsUnderWayAndAPause) {
  const auto remote = this->remote();
  server_->fail_next({.cut = 5, .stall = true});
  auto reading = std::async(std::launch::async,
                            [&] { return fetch(*remote, url(), 1'000'000, ErrorCode::kTransientIo); });
  server_->wait_for_stall();
  stop_.request_stop();
  EXPECT_THAT(reading.get(), HasSubstr("not read, because the server is stopping"));
  server_->resume();

  std::stop_source other;
  options_.stop = other.get_token();
  options_.backoff = std::chrono::hours(1);  // of which at most ten seconds are kept
  const auto patient = this->remote();
  server_->fail_next({.status = 503});
  auto pausing = std::async(std::launch::async,
                            [&] { return fetch(*patient, url(), 1'000'000, ErrorCode::kTransientIo); });
  while (patient->counts().retries == 0) std::this_thread::yield();
  other.request_stop();
  EXPECT_THAT(pausing.get(),
              AllOf(HasSubstr("503"), HasSubstr("not tried again, because the server is stopping")));
}

TEST_F(RemoteTest, WhatIsSecretInAUrlIsSentAndNotShown) {
  const auto remote = this->remote();
  server_->calls();
  const std::string secret = server_->url("/none%20here?sig=hidden", "me:hushhush@");
  const std::string message = fetch(*remote, secret);
  EXPECT_THAT(message, AllOf(HasSubstr("/none here?...: the server answers 404"), Not(HasSubstr("hush")),
                             Not(HasSubstr("hidden")), Not(HasSubstr("me:"))));
  const auto calls = server_->calls();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].path, "/none here");
  EXPECT_EQ(calls[0].query, "sig=hidden");
  EXPECT_THAT(calls[0].authorization, HasSubstr("Basic "));
}

TEST_F(RemoteTest, AServerWithoutTlsIsNamedAsTheLikelyMistake) {
  const std::string https = "https" + url().substr(std::string("http").size());
  EXPECT_THAT(fetch(*remote(), https, 1'000'000, ErrorCode::kTransientIo),
              HasSubstr("does the server expect http:// here? (after "));
}

TEST_F(RemoteTest, AFileOfAuthoritiesMustBeThere) {
  options_.transfers.tls_ca = "/none/ca.pem";
  const auto made = Remote::make(options_);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("tls_ca /none/ca.pem: No such file or directory"));
}

}  // namespace
}  // namespace headrace::server::remote
