// Reading over HTTP from a real server on loopback: ranges, faults that pass and faults that last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "server/remote/remote.h"
#include "server/remote/url.h"
#include "tests/web_server.h"

namespace headrace::server::remote {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class RemoteTest : public testing::Test {
 protected:
  // Stopping civetweb takes seconds, so all tests share one server.
  static void SetUpTestSuite() { server_ = new WebServer; }
  static void TearDownTestSuite() { delete server_; }
  RemoteTest() {
    server_->begin_anew();
    for (int i = 0; i < 3000; ++i) content_ += std::to_string(i);
    server_->put("/file", {.content = content_});
    options_.backoff = std::chrono::milliseconds(1);
    options_.stop = stop_.get_token();
  }
  void TearDown() override { server_->resume(); }

  std::shared_ptr<const Remote> remote() {
    auto made = Remote::make(options_);
    EXPECT_TRUE(made) << made.error().message;
    return made.value_or(nullptr);
  }
  std::string url(const std::string& path = "/file") { return server_->url(path); }
  /// The bytes that were read, or the error.
  static std::string read(const Remote& remote, const std::string& url, const Stat& known, std::size_t offset,
                          std::size_t size, ErrorCode code = ErrorCode::kDatasetInvalid) {
    std::vector<std::uint8_t> out(size);
    const auto done = remote.read(url, known, offset, out);
    if (!done) {
      EXPECT_EQ(done.error().code, code) << done.error().message;
      return done.error().message;
    }
    return {out.begin(), out.end()};
  }
  static std::string fetch(const Remote& remote, const std::string& url, std::uint64_t most = 1'000'000,
                           ErrorCode code = ErrorCode::kDatasetInvalid) {
    std::vector<std::uint8_t> out;
    const auto done = remote.fetch(url, most, out);
    if (!done) {
      EXPECT_EQ(done.error().code, code) << done.error().message;
      return done.error().message;
    }
    EXPECT_EQ(done->bytes, out.size());
    return {out.begin(), out.end()};
  }
  static std::vector<std::string> ranges() {
    std::vector<std::string> out;
    for (const auto& call : server_->calls()) out.push_back(call.range);
    return out;
  }

  static inline WebServer* server_ = nullptr;
  std::string content_;
  std::stop_source stop_;
  Options options_;
};

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

TEST_F(RemoteTest, AContinuationLineBelongsToNoHeaderOfThePreviousReply) {
  server_->put("/folded", {.content = content_, .headers = " folded: 1\r\n"});
  const auto remote = this->remote();
  ASSERT_TRUE(remote->stat(url()));
  const auto refused = remote->stat(url("/folded"));
  ASSERT_FALSE(refused) << "libcurl has continued a header that it had freed";
  EXPECT_THAT(refused.error().message, HasSubstr("/folded: "));
  const auto known = remote->stat(url());
  ASSERT_TRUE(known) << known.error().message;
  EXPECT_EQ(known->tag, "\"1\"");
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

TEST_F(RemoteTest, AConnectionServesOneTransferAtATime) {
  constexpr int kThreads = 8, kReads = 25;
  const auto remote = this->remote();
  const Stat known{content_.size(), "\"1\"", true};
  std::vector<std::future<int>> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.push_back(std::async(std::launch::async, [&, t] {
      int right = 0;
      for (int i = 0; i < kReads; ++i) {
        const auto at = static_cast<std::size_t>(t * kReads + i);
        if (read(*remote, url(), known, at, 50) == content_.substr(at, 50)) ++right;
      }
      return right;
    }));
  for (auto& thread : threads) EXPECT_EQ(thread.get(), kReads);
}

TEST_F(RemoteTest, AReplyThatIsCutInItsHeadIsTriedAgain) {
  const Stat known{content_.size(), "\"1\"", true};
  for (const char* head : {"HTTP/1.1 200 OK\r\n", "HTTP/1.1 206 X\r\nContent-Le", "HTTP/1.1 103 X\r\n\r\n",
                           "HTTP/1.1 404 X\r\n", "HTTP/1.1 302 X\r\n"}) {
    for (int i = 0; i < 3; ++i) server_->fail_next({.raw = head});
    const auto remote = this->remote();
    const auto found = remote->stat(url());
    ASSERT_TRUE(found) << head << found.error().message;
    EXPECT_EQ(found->bytes, content_.size());
    EXPECT_EQ(remote->counts().retries, 3U) << head;
    server_->fail_next({.raw = head});
    EXPECT_EQ(fetch(*remote, url()), content_) << head;
    server_->fail_next({.raw = head});
    EXPECT_EQ(read(*remote, url(), known, 100, 50), content_.substr(100, 50)) << head;
  }
}

TEST_F(RemoteTest, ARedirectToAServerThatIsNotThereIsTriedAgain) {
  server_->fail_next({.status = 302, .headers = "Location: http://127.0.0.1:1/\r\n"}, 2);
  const auto remote = this->remote();
  EXPECT_EQ(fetch(*remote, url()), content_);
  EXPECT_EQ(remote->counts().retries, 2U);
}

TEST_F(RemoteTest, HeadersWithoutEndAreNotKept) {
  options_.attempts = 1;
  std::string endless;
  for (int i = 0; i < 300; ++i) endless += "t" + std::to_string(i) + ": " + std::string(2000, 'x') + "\r\n";
  const std::string begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
  for (const std::string& raw :
       {begin + "\r\n3\r\nabc\r\n0\r\n" + endless + "\r\n", begin + endless + "\r\n0\r\n\r\n"}) {
    server_->fail_next({.raw = raw});
    EXPECT_THAT(fetch(*remote(), url(), 1'000'000, ErrorCode::kTransientIo), HasSubstr("headers"));
  }
}

TEST_F(RemoteTest, ListingsThatDoNotEndAreRefused) {
  options_.s3.endpoint = server_->url("");
  options_.s3.anonymous = true;
  const auto page = [](const std::string& key, const std::string& next) {
    return "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" + next +
           "</NextContinuationToken>" +
           (key.empty() ? "" : "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>") +
           "</ListBucketResult>";
  };
  for (const char* next : {"t1", "t0", "t1"}) server_->fail_next({.status = 200, .body = page("a/k", next)});
  const auto round = remote()->list("s3://bucket/a/", true);
  ASSERT_FALSE(round);
  EXPECT_THAT(round.error().message, HasSubstr("repeats its pages"));
  server_->begin_anew();
  for (int i = 0; i < 200; ++i) server_->fail_next({.status = 200, .body = page("", std::to_string(i))});
  const auto empty = remote()->list("s3://bucket/a/", true);
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, HasSubstr("repeats its pages"));
}

TEST_F(RemoteTest, AListingThatIsTooLargeIsRefused) {
  options_.s3.endpoint = server_->url("");
  options_.s3.anonymous = true;
  options_.most_listed = 2000;
  const auto page = [](int number) {
    const std::string n = std::to_string(number);
    return "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" + n +
           "</NextContinuationToken><Contents><Key>a/" + n + std::string(500, 'k') +
           "</Key><Size>1</Size></Contents></ListBucketResult>";
  };
  for (int i = 0; i < 10; ++i) server_->fail_next({.status = 200, .body = page(i)});
  const auto listed = remote()->list("s3://bucket/a/", true);
  ASSERT_FALSE(listed);
  EXPECT_THAT(listed.error().message, HasSubstr("s3://bucket/a/: the listing needs more than 2000 bytes"));
  EXPECT_LE(server_->calls().size(), 4U);
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
