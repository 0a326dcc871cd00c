// One allocation after the other fails, while a server starts, a client attaches, workers fill batches and a
// client reads them. Each failure ends in an error with a name, in a sample that is replaced, or in nothing
// at all. Nothing crashes or hangs, no descriptor stays open, and all rows that are not replaced have the
// bytes of an undisturbed run, each batch once. Which allocations cannot fail, and why: failing_allocation.h.
//
// The threads whose allocations count differ by phase. Where one thread does the work (configuration,
// attaching, reading), only it counts, so that the number of an allocation is the same in each run. A start
// has threads of its own, and batches are filled by all workers.
//
// The first allocations of a phase fail, each in a run of its own, and some of the further ones; with
// HEADRACE_STRESS=1, all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/client.h"
#include "server/config/config.h"
#include "server/log/log.h"
#include "server/pack/packer.h"
#include "server/session/server.h"
#include "server/source/formats/image_folder.h"
#include "tests/fault/each_allocation.h"
#include "tests/fault/failing_allocation.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/temp_folder.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::uint32_t kSamples = 22;
constexpr int kBatch = 4;
constexpr std::uint64_t kBatches = 6;
constexpr std::uint64_t kEpochs = 2;

struct Row {
  std::string bytes;  ///< its number, and the bytes of all fields
  bool replaced = false;
};

std::vector<Row> rows_of(const BatchView& batch) {
  std::vector<Row> rows;
  for (const RowInfo& info : batch.all_rows())
    rows.push_back({std::to_string(info.sample_index) + (info.valid ? " valid " : " "), info.replaced});
  for (const FieldSpec& spec : batch.fields()) {
    const FieldView field = batch.field(spec.name).value();
    const std::size_t size = field.bytes() / rows.size();
    for (std::size_t r = 0; r < rows.size(); ++r)
      rows[r].bytes.append(reinterpret_cast<const char*>(field.data) + r * size, size);
  }
  return rows;
}

void say_what_failed(int signal) {
  std::signal(signal, SIG_DFL);
  std::fprintf(stderr, "crashed without the memory for:%s\n", FailingAllocation::stack().c_str());
  std::raise(signal);
}

/// A server; the thread that serves its clients is marked.
class Served {
 public:
  explicit Served(const server::config::Config& config)
      : server_(or_throw(server::session::Server::start(config))), thread_([this] {
          FailingAllocation::mark_this_thread();
          server_->run();
        }) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    server_->ask_to_stop();
    thread_.join();
  }

 private:
  std::unique_ptr<server::session::Server> server_;
  std::thread thread_;
};

class FailingMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, say_what_failed);
    server::log::set_sink(std::make_shared<spdlog::sinks::null_sink_mt>());
    for (std::uint32_t i = 0; i < kSamples; ++i) {
      const auto file = pixels::make_jpeg({.width = 60, .height = 50, .progressive = i % 3 == 0, .seed = i});
      folder_.put((i % 2 ? "photos/cat/" : "photos/dog/") + std::to_string(i) + ".jpg",
                  std::string(file.begin(), file.end()));
    }
    const auto photos = server::source::open_image_folder(folder_.path() / "photos").value();
    ASSERT_TRUE(server::pack::pack(*photos, folder_.path() / "packed", {}, std::atomic<bool>(false),
                                   [](const server::pack::PackProgress&) {}));
  }

  /// Streams over the folder, with a cache, and over the database.
  [[nodiscard]] std::string streams() const {
    const std::string chain =
        "batch_size: 4, max_bad: 1, ring: { max_leases: 3 }, transforms: [random_resized_crop: {size: "
        "24}, color_jitter: {brightness: 0.2}, random_horizontal_flip] }";
    return "sources:\n  photos: { type: image_folder, path: " + (folder_.path() / "photos").string() +
           ", cache: { encoded: 1MiB } }\n  packed: { type: lmdb, path: " +
           (folder_.path() / "packed").string() + " }\nstreams:\n  train: { source: photos, " + chain +
           "\n  packed: { source: packed, " + chain + "\n";
  }
  [[nodiscard]] std::string configuration() const {
    return "server: { directory: " + directory_ +
           ", threads: 2, metrics: { port: 0 }, drain_timeout: 100ms }\n" + streams();
  }
  void serve() {
    server_.reset();
    server_.emplace(or_throw(server::config::parse(configuration(), "test.yaml")));
  }
  [[nodiscard]] Result<Stream> open(const std::string& stream) const {
    return open(ConnectOptions{.address = directory_, .timeout = 5s},
                OpenOptions{.stream = stream, .client = "reader", .reconnect_timeout = 5s});
  }
  /// Allocates nothing itself.
  static Result<Stream> open(const ConnectOptions& server, const OpenOptions& stream) {
    auto client = Client::connect(server);
    if (!client) return tl::make_unexpected(std::move(client).error());
    return client->open(stream);
  }

  using Epochs = std::vector<std::vector<Row>>;  ///< the batches' rows

  /// Reads the epochs; `next` calls stream.next(). Compares with `expected` if there is any.
  template <class Next>
  static Epochs read(Stream& stream, const Next& next, const Epochs* expected, int* replaced = nullptr) {
    Epochs all;
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch)
      for (std::uint64_t batch = 0;; ++batch) {
        std::optional<BatchView> view;
        if (!next(stream, view)) return all;
        if (!view) {
          EXPECT_EQ(batch, kBatches);
          break;
        }
        EXPECT_EQ(view->epoch(), epoch);
        EXPECT_EQ(view->batch(), batch);
        all.push_back(rows_of(*view));
        if (expected == nullptr) continue;
        const std::vector<Row>& wanted = expected->at(all.size() - 1);
        EXPECT_EQ(all.back().size(), wanted.size());
        for (std::size_t r = 0; r < std::min(wanted.size(), all.back().size()); ++r) {
          if (all.back()[r].replaced && replaced != nullptr)
            ++*replaced;
          else
            EXPECT_EQ(all.back()[r].bytes == wanted[r].bytes, true) << "row " << r << " of batch " << batch;
        }
      }
    return all;
  }
  static bool plainly(Stream& stream, std::optional<BatchView>& view) {
    auto got = stream.next(20s);
    EXPECT_TRUE(got) << got.error().to_string();
    if (got) view = std::move(*got);
    return got.has_value();
  }
  [[nodiscard]] Epochs undisturbed(const std::string& name) {
    serve();
    auto stream = open(name);
    EXPECT_TRUE(stream) << stream.error().to_string();
    return read(*stream, plainly, nullptr);
  }

  TempFolder folder_;
  const std::string directory_ = (folder_.path() / "run").string();
  std::optional<Served> server_;
};

TEST_F(FailingMemory, OfAConfigurationHasAName) {
  const std::string text = configuration();
  fail_each("configuration", 100, 31, [&](std::uint64_t n, const auto& done) {
    std::string became = "read";
    const FailingAllocation allocation(Threads::kThisThread, n);
    try {
      if (const auto config = server::config::parse(text, "test.yaml"); !config)
        became = named(config.error());
    } catch (const std::bad_alloc&) {
      became = "bad_alloc, which the verbs report as NOT_ENOUGH_MEMORY";
    }
    done(allocation, became);
  });
}

TEST_F(FailingMemory, OfAStartHasANameAndLeavesNothingBehind) {
  const auto config = or_throw(server::config::parse(configuration(), "test.yaml"));
  { (void)or_throw(server::session::Server::start(config)); }  // whatever is opened once per process
  const auto before = descriptors();
  fail_each("start", 60, 61, [&](std::uint64_t n, const auto& done) {
    {
      std::string became = "started";
      const FailingAllocation allocation(Threads::kAllThreads, n);
      const auto started = server::session::Server::start(config);
      if (!started) became = named(started.error());
      done(allocation, became);
    }
    expect_no_more(before);
  });
  EXPECT_TRUE(server::session::Server::start(config));
}

TEST_F(FailingMemory, OfAClientThatAttachesHasANameAndCostsNoLane) {
  serve();
  { (void)open("train").value(); }
  const auto before = descriptors();
  const ConnectOptions server{.address = directory_, .timeout = 5s};
  const OpenOptions options{.stream = "train", .client = "reader", .reconnect_timeout = 5s};
  fail_each("attach, client", 100, 7, [&](std::uint64_t n, const auto& done) {
    {
      std::string became = "attached";
      const FailingAllocation allocation(Threads::kThisThread, n);
      const auto stream = open(server, options);
      if (!stream) became = named(stream.error());
      done(allocation, became);
    }
    const auto again = open("train");  // has the same name
    EXPECT_TRUE(again) << again.error().to_string();
  });
  expect_no_more(before);
}

TEST_F(FailingMemory, OfAServerThatAttachesAClientHasANameAndCostsNoLane) {
  serve();
  { (void)open("train").value(); }
  const auto before = descriptors();
  fail_each("attach, server", 100, 11, [&](std::uint64_t n, const auto& done) {
    {
      std::string became = "attached";
      const FailingAllocation allocation(Threads::kMarkedThread, n);
      const auto stream = open("train");
      if (!stream) became = named(stream.error());
      done(allocation, became);
    }
    const auto again = open("packed");
    EXPECT_TRUE(again) << again.error().to_string();
  });
  expect_no_more(before);
}

TEST_F(FailingMemory, OfWorkersReplacesASampleOrStopsTheStreamByName) {
  for (const char* const name : {"train", "packed"}) {
    const Epochs expected = undisturbed(name);
    ASSERT_EQ(expected.size(), kEpochs * kBatches);
    fail_each(name, 30, 17, [&](std::uint64_t n, const auto& done) {
      serve();
      auto stream = open(name);
      ASSERT_TRUE(stream) << stream.error().to_string();
      std::string became;
      int replaced = 0;
      const FailingAllocation allocation(Threads::kOtherThreads, n);
      const auto all = read(
          *stream,
          [&](Stream& from, std::optional<BatchView>& view) {
            auto got = from.next(20s);
            if (got) view = std::move(*got);
            if (!got) {
              became = named(got.error());
              EXPECT_THAT(got.error().message, HasSubstr("NOT_ENOUGH_MEMORY"));
            }
            return got.has_value();
          },
          &expected, &replaced);
      if (became.empty()) {
        EXPECT_EQ(all.size(), expected.size());
        became = replaced > 0 ? std::to_string(replaced) + " replaced" : "no difference";
      }
      done(allocation, became);
    });
  }
}

TEST_F(FailingMemory, OfAReaderHasANameAndTheNextCallGivesTheSameBatch) {
  for (const Batches batches : {Batches::kShared, Batches::kPrivate}) {
    const Epochs expected = undisturbed("train");
    ASSERT_EQ(expected.size(), kEpochs * kBatches);
    const auto before = descriptors();
    fail_each(batches == Batches::kShared ? "views" : "copies", 100, 5,
              [&](std::uint64_t n, const auto& done) {
                {
                  auto stream = Client::connect({.address = directory_})
                                    .value()
                                    .open({.stream = "train", .client = "reader", .batches = batches});
                  ASSERT_TRUE(stream) << stream.error().to_string();
                  std::string became = "no difference";
                  std::uint64_t left = n;
                  bool reached = false;
                  const auto all = read(
                      *stream,
                      [&](Stream& from, std::optional<BatchView>& view) {
                        // Counts only what next() allocates: this test's own memory does not fail.
                        for (int tries = 0; tries < 2; ++tries) {
                          std::optional<Error> error;
                          {
                            std::optional<FailingAllocation> allocation;
                            if (!reached) allocation.emplace(Threads::kThisThread, left);
                            auto got = from.next(20s);
                            if (got) view = std::move(*got);
                            if (!got) error = got.error();
                            if (allocation) {
                              reached = allocation->reached();
                              left = allocation->left();
                              if (reached) done(*allocation, error ? named(*error) : became);
                            }
                          }
                          if (!error) return true;
                          if (!reached) break;
                        }
                        ADD_FAILURE() << "next() failed without a cause";
                        return false;
                      },
                      &expected);
                  EXPECT_EQ(all.size(), expected.size());
                }
                expect_no_more(before);
              });
  }
}

}  // namespace
}  // namespace headrace::testing
