// Reads over HTTP from a real server on loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/remote/remote.h"
#include "tests/web_server.h"

namespace headrace::server::remote {

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

}  // namespace headrace::server::remote
