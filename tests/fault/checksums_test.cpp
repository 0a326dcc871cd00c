// Bits of published batches flip in memory. With ring.checksums, clients get the bytes of an undisturbed run
// all the same, and the damage is counted and logged.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "clientlib/ring/layout.h"
#include "headrace/client.h"
#include "server/config/config.h"
#include "server/log/log.h"
#include "server/session/server.h"
#include "tests/batch_content.h"
#include "tests/temp_folder.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint64_t kBatches = 12;

/// The ring's memory, through the server's own descriptors: clients cannot write to it.
class Memory {
 public:
  Memory() {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      const std::string name = std::filesystem::read_symlink(entry, closed).string();
      // The first of each: a client's come later, and are closed when it attaches again.
      if (data_.empty() && name.starts_with("/memfd:headrace-data-train")) data_ = entry.path();
      if (control_.empty() && name.starts_with("/memfd:headrace-control-train")) control_ = entry.path();
    }
  }
  /// Changes a byte of the first row of a READY slot that holds this batch of `epoch`, or of any. False:
  /// there is none.
  [[nodiscard]] bool flip(std::uint64_t batch, std::optional<std::uint64_t> epoch = 0) const {
    ring::ControlHeader header{};
    read(control_, 0, header);
    for (std::uint32_t i = 0; i < header.slot_count; ++i) {
      ring::SlotDesc slot{};
      read(control_, header.slots_offset + i * sizeof slot, slot);
      if (ring::slot_state(slot.word) != ring::SlotState::kReady || slot.batch != batch ||
          (epoch && slot.epoch != *epoch))
        continue;
      const auto at = static_cast<off_t>(i * header.slot_stride + 3);
      const int fd = ::open(data_.c_str(), O_RDWR | O_CLOEXEC);
      char byte = 0;
      EXPECT_EQ(::pread(fd, &byte, 1, at), 1);
      byte = static_cast<char>(byte + 1);  // not ^: a second time would repair it
      EXPECT_EQ(::pwrite(fd, &byte, 1, at), 1) << std::strerror(errno);
      ::close(fd);
      return true;
    }
    return false;
  }

 private:
  template <class T>
  static void read(const std::filesystem::path& from, std::uint64_t at, T& out) {
    const int fd = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(::pread(fd, static_cast<void*>(&out), sizeof out, static_cast<off_t>(at)),
              static_cast<ssize_t>(sizeof out));
    ::close(fd);
  }
  std::filesystem::path data_, control_;
};

class Checksums : public ::testing::Test {
 protected:
  void serve(const std::string& ring, const std::string& more = "") {
    stop();
    server::log::set_sink(std::make_shared<spdlog::sinks::ostream_sink_mt>(log_));
    const std::string text = "server: { directory: " + directory_ +
                             ", threads: 2, metrics: off, drain_timeout: 100ms }\n"
                             "sources: { rows: { type: synthetic, count: 96, bytes: 1000 } }\n"
                             "streams: { train: { source: rows, batch_size: 8, ring: { data_access: "
                             "read_write" +
                             ring + " }" + more + " } }\n";
    server_ = or_throw(server::session::Server::start(or_throw(server::config::parse(text, "test.yaml"))));
    thread_ = std::thread([this] { server_->run(); });
  }
  void stop() {
    if (!server_) return;
    server_->ask_to_stop();
    thread_.join();
    server_.reset();
  }
  void TearDown() override { stop(); }
  [[nodiscard]] Stream open(Batches batches = Batches::kShared, const std::string& client = "reader") const {
    return or_throw(or_throw(Client::connect({.address = directory_}))
                        .open({.stream = "train", .client = client, .batches = batches}));
  }
  static std::optional<std::string> next(Stream& stream) {
    auto batch = or_throw(stream.next(20s));
    return batch ? std::optional(content_of(*batch)) : std::nullopt;
  }
  static std::vector<std::string> epoch_of(Stream& stream) {
    std::vector<std::string> all;
    while (auto batch = next(stream)) all.push_back(std::move(*batch));
    return all;
  }
  /// Flips a bit of a batch once it is ready.
  static void damage(std::uint64_t batch) {
    const Memory memory;
    bool flipped = memory.flip(batch);
    for (int look = 0; look < 5000 && !flipped; ++look) {
      std::this_thread::sleep_for(1ms);
      flipped = memory.flip(batch);
    }
    EXPECT_TRUE(flipped) << "batch " << batch << " did not become ready";
  }
  [[nodiscard]] std::uint64_t mismatches() const {
    return server_->collector().stats()["streams"]["train"]["checksum_mismatches"].get<std::uint64_t>();
  }

  /// A worker publishes the count a moment after the grant.
  void expect_mismatches(std::uint64_t count) const {
    for (int look = 0; look < 5000 && mismatches() < count; ++look) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(mismatches(), count);
  }

  TempFolder folder_;
  const std::string directory_ = (folder_.path() / "run").string();
  std::ostringstream log_;
  std::unique_ptr<server::session::Server> server_;
  std::thread thread_;
};

constexpr const char* kOn = ", checksums: true";

TEST_F(Checksums, HaveADamagedBatchMadeAgain) {
  serve(kOn);
  for (const Batches batches : {Batches::kShared, Batches::kPrivate}) {
    Stream undisturbed = open();
    const auto expected = epoch_of(undisturbed);
    ASSERT_EQ(expected.size(), kBatches);
    const std::uint64_t before = mismatches();
    Stream stream = open(batches, "other");
    for (std::uint64_t b = 0; b < kBatches; ++b) {
      if (b % 3 == 2) damage(b);
      EXPECT_TRUE(next(stream) == expected[b]) << "batch " << b;
    }
    EXPECT_EQ(next(stream), std::nullopt);
    expect_mismatches(before + kBatches / 3);
  }
  stop();
  EXPECT_THAT(log_.str(), HasSubstr("stream `train`: epoch 0, batch 2 was damaged in memory (slot "));
}

TEST_F(Checksums, HaveABatchOfSeveralClientsMadeAgainOnce) {
  serve(kOn, ", sharing: { wait_for: 2 }");
  Stream one = open(Batches::kShared, "one"), two = open(Batches::kShared, "two");
  std::vector<BatchView> held;  // of the leases, one is left
  std::vector<std::string> all;
  std::thread first([&] { held.push_back(std::move(*or_throw(one.next(20s)))); });
  (void)next(two);
  first.join();
  held.push_back(std::move(*or_throw(one.next(20s))));
  damage(2);
  EXPECT_EQ(mismatches(), 0U);
  all.push_back(*next(one));
  expect_mismatches(1);
  (void)next(two);
  EXPECT_TRUE(*next(two) == all.front());
  expect_mismatches(1);
  held.clear();
  EXPECT_EQ(epoch_of(one), epoch_of(two));
}

TEST_F(Checksums, NameABatchThatIsDamagedAgainAndAgainAndGiveItOnceItIsNot) {
  serve(kOn);
  Stream stream = open();
  (void)next(stream);
  const Memory data;
  std::atomic<bool> broken = true;
  std::thread memory([&] {
    while (broken)
      for (std::uint64_t batch = 0; batch < kBatches; ++batch) (void)data.flip(batch, std::nullopt);
  });
  // Most copies are read before the thread finds them, so it takes several batches.
  std::optional<Error> error;
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!error && std::chrono::steady_clock::now() < end)
    if (const auto batch = stream.next(20s); !batch) error = batch.error();
  broken = false;
  memory.join();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kEnvironment);
  EXPECT_THAT(error->message, HasSubstr("was damaged in memory 3 times in a row: test the machine's memory"));
  const auto batch = or_throw(stream.next(20s));
  ASSERT_TRUE(batch);
  const std::string name = fmt::format("epoch {}, batch {} ", batch->epoch(), batch->batch());
  EXPECT_THAT(error->message, HasSubstr(name));
}

TEST_F(Checksums, AreOffByDefault) {
  serve("");
  Stream undisturbed = open();
  const auto expected = epoch_of(undisturbed);
  Stream stream = open(Batches::kShared, "other");
  damage(0);
  EXPECT_FALSE(next(stream) == expected[0]);
  EXPECT_TRUE(next(stream) == expected[1]);
  EXPECT_EQ(mismatches(), 0U);
}

}  // namespace
}  // namespace headrace
