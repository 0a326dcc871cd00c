// An exception stops only its own stream, with a named error: the process and all other streams continue, and
// no slot is lost. One of the exceptions is std::bad_alloc from each allocation in turn, thrown by this
// program's operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>

#include "tests/engine_fixture.h"
#include "tests/forwarding_source.h"

namespace {
/// The number of this thread's allocations until one fails; negative: none fails.
thread_local int allocations_left = -1;
std::atomic<int> failed_allocations{0};
}  // namespace

// Not inlined: GCC would see free() beside a new that it knows.
// NOLINTBEGIN(cppcoreguidelines-no-malloc, misc-new-delete-overloads)
void* operator new(std::size_t size) {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    failed_allocations.fetch_add(1);
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc, misc-new-delete-overloads)

namespace headrace::testing {
namespace {

using server::source::Sample;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSamples = 48;
constexpr std::uint32_t kBatch = 8;

/// Calls `on_read` before each read, and `on_fault` at each check for faults, which a worker makes once per
/// batch and outside any row.
class Hooked final : public ForwardingSource {
 public:
  using ForwardingSource::ForwardingSource;
  Result<void> read(std::uint64_t index, Sample& out) const override {
    if (on_read) on_read();
    return ForwardingSource::read(index, out);
  }
  [[nodiscard]] std::optional<Error> fault() const override {
    if (on_fault) on_fault();
    return ForwardingSource::fault();
  }
  std::function<void()> on_read, on_fault;
};

/// A sampler that fails from a given epoch on. The engine requests epochs when it begins a batch.
class BrokenSampler final : public server::sampler::Sampler {
 public:
  [[nodiscard]] std::uint64_t size() const override { return kSamples; }
  [[nodiscard]] server::sampler::EpochOrder order(std::uint64_t epoch) const override {
    if (epoch >= 1) throw std::runtime_error("no such epoch");
    return {};
  }
  [[nodiscard]] std::uint64_t substitute(std::uint64_t bad, server::sampler::Draws&) const override {
    return bad;
  }
  [[nodiscard]] std::uint64_t reach() const override { return kSamples; }
};

std::shared_ptr<Hooked> hooked_source() {
  return std::make_shared<Hooked>(server::source::make_synthetic(kSamples, 24).value());
}

StreamSetup stream_of(const std::string& name, std::shared_ptr<const SampleMaker> maker) {
  StreamSetup setup = synthetic_stream(name, kSamples, kBatch, 2);
  setup.maker = std::move(maker);
  return setup;
}

/// Reads batches until `count` have come, or the stream has stopped.
int take(Engine& engine, RingClient& client, int count) {
  int taken = 0;
  while (taken < count) {
    const auto grant = client.next(std::chrono::milliseconds(200));
    if (grant) {
      client.reader().ack(*grant);
      ++taken;
    } else if (engine.stream(client.stream()).failed()) {
      break;
    }
  }
  return taken;
}

/// After its clients left.
void expect_all_slots_free(Engine& engine, std::size_t stream) {
  const auto counts = [&] {
    return engine.inspect(stream, [](const Stream& s) { return s.lanes().ledger().counts(); });
  };
  for (int look = 0; look < 500 && counts().filling > 0; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(counts().filling, 0U);
  EXPECT_EQ(counts().leased, 0U);
  EXPECT_EQ(counts().ready, 0U);
}

void expect_stopped_alone(StreamSetup broken, const std::string& why) {
  std::vector<StreamSetup> setups;
  setups.push_back(std::move(broken));
  setups.push_back(synthetic_stream("healthy", kSamples, kBatch, 2));
  const auto engine = start_engine(std::move(setups), 2);
  RingClient one(*engine, "broken", "one"), other(*engine, "healthy", "other");
  take(*engine, one, 1000);
  ASSERT_TRUE(engine->stream(0).failed());
  EXPECT_THAT(engine->stream(0).failure().message,
              AllOf(HasSubstr("stream `broken` stopped"), HasSubstr(why), HasSubstr("INTERNAL")));
  EXPECT_EQ(take(*engine, other, 30), 30);
  EXPECT_FALSE(engine->stream(1).failed()) << engine->stream(1).failure().message;
  other.leave();
  expect_all_slots_free(*engine, 1);
}

TEST(AnException, BetweenLoanAndFillStopsItsStreamAlone) {
  expect_stopped_alone(stream_of("broken", make_samples(server::source::make_synthetic(kSamples, 24).value(),
                                                        {.sampler = std::make_shared<BrokenSampler>()})),
                       "could not start a batch: no such epoch");
}

TEST(AnException, OfAWorkerOutsideOfARowStopsItsStreamAlone) {
  const auto source = hooked_source();
  source->on_fault = [] { throw std::runtime_error("asked too much"); };
  expect_stopped_alone(stream_of("broken", make_samples(source, {})), "could not make rows: asked too much");
}

TEST(AnException, OfARowStopsItsStreamAlone) {
  const auto source = hooked_source();
  source->on_read = [] { throw std::logic_error("unheard of"); };
  expect_stopped_alone(stream_of("broken", make_samples(source, {})), "a worker threw: unheard of");
}

/// Counted from a row of stream `one`, the worker's n-th allocation fails, for whichever stream the worker
/// then works.
TEST(AnException, InAnyAllocationStopsOnlyTheStreamBeingServed) {
  std::array<int, 2> stopped{};
  for (int n = 0; n < 80; ++n) {
    SCOPED_TRACE(n);
    const auto source = hooked_source();
    std::atomic<int> reads{0};
    source->on_read = [&] {
      if (reads.fetch_add(1) == 2 * kBatch) allocations_left = n;
    };
    std::vector<StreamSetup> setups;
    setups.push_back(stream_of("one", make_samples(source, {})));
    setups.push_back(synthetic_stream("other", kSamples, kBatch, 2));
    const auto engine = start_engine(std::move(setups), 1);
    std::array<std::unique_ptr<RingClient>, 2> clients{
        std::make_unique<RingClient>(*engine, "one", "one"),
        std::make_unique<RingClient>(*engine, "other", "other")};
    std::array<int, 2> taken{};
    std::thread reader([&] { taken[1] = take(*engine, *clients[1], 40); });
    taken[0] = take(*engine, *clients[0], 40);
    reader.join();
    for (std::size_t s = 0; s < 2; ++s) {
      clients[s]->leave();
      if (engine->stream(s).failed()) {
        ++stopped[s];
        EXPECT_THAT(engine->stream(s).failure().message, HasSubstr("bad_alloc"));
        EXPECT_FALSE(engine->stream(1 - s).failed()) << engine->stream(1 - s).failure().message;
      } else {
        EXPECT_EQ(taken[s], 40);
        expect_all_slots_free(*engine, s);
      }
    }
  }
  EXPECT_GT(failed_allocations.load(), 20);
  EXPECT_GT(stopped[0] + stopped[1], 5);
}

}  // namespace
}  // namespace headrace::testing
