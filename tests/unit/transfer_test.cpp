// Replies that are cut, endless or malformed before their content, and transfers of several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "server/remote/remote.h"
#include "tests/remote_fixture.h"

namespace headrace::server::remote {
namespace {

using testing::HasSubstr;

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

TEST_F(RemoteTest, ATrailerDoesNotBeginAnotherHead) {
  const std::string raw =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nHTTP/x: 1\r\n\r\n";
  server_->fail_next({.raw = raw});
  const auto remote = this->remote();
  EXPECT_EQ(fetch(*remote, url()), "abc");
  EXPECT_EQ(remote->counts().retries, 0U);
  server_->fail_next({.raw = raw});
  EXPECT_THAT(remote->stat(url()).error().message, HasSubstr("does not send its size"));
}

TEST_F(RemoteTest, HeadersWithoutEndAreNotKept) {
  options_.attempts = 1;
  std::string endless;
  for (int i = 0; i < 300; ++i) endless += "t" + std::to_string(i) + ": " + std::string(2000, 'x') + "\r\n";
  const std::string begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
  const std::string long_line = "x: " + std::string(150'000, 'x') + "\r\n";
  for (const std::string& raw : {begin + "\r\n3\r\nabc\r\n0\r\n" + endless + "\r\n",
                                 begin + endless + "\r\n0\r\n\r\n", begin + long_line + "\r\n0\r\n\r\n"}) {
    server_->fail_next({.raw = raw});
    EXPECT_THAT(fetch(*remote(), url(), 1'000'000, ErrorCode::kTransientIo), HasSubstr("headers"));
  }
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

}  // namespace
}  // namespace headrace::server::remote
