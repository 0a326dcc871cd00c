// Measures the cost of a batch's way through the ring, and the time in which a sleeping client wakes.
//   ring_bench [batches] [spin_us]
// CPU: one publisher and one reader process, 64 rows in 4 KiB; user + system time of both threads per batch.
// The publisher fills nothing. Latency: from publish to next() returning in the other process, one batch at a
// time.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "clientlib/ring/futex.h"
#include "clientlib/ring/ring_reader.h"
#include "clientlib/ring/ring_writer.h"
#include "tests/bench/thread_cpu.h"

namespace {

using namespace headrace;
using namespace headrace::ring;
using headrace::testing::thread_cpu_ns;
using namespace std::chrono_literals;

constexpr std::uint32_t kSlots = 8;

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "{}\n", result.error().to_string());
  std::exit(3);
}

/// The reader process's results for its parent.
struct Report {
  std::uint64_t cpu_ns;
  std::uint64_t count;
  std::uint64_t latency_ns[1 << 16];
};

struct Bench {
  std::unique_ptr<RingWriter> ring;
  UniqueFd doorbell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Report* report = static_cast<Report*>(
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t child = -1;

  Bench(std::uint64_t batches, std::chrono::nanoseconds spin, bool pause) {
    ring = need(RingWriter::create({.name = "bench",
                                    .fields = {{.name = "x", .dtype = DType::kUInt8, .shape = {64}}},
                                    .rows = 64,
                                    .slots = kSlots,
                                    .lanes = 1}));
    auto sent = ring->attach(0, need(ring->make_lease()));
    auto reader = need(RingReader::open({.data = UniqueFd(::dup(sent.data_fd)),
                                         .control = UniqueFd(::dup(sent.control_fd)),
                                         .lease = std::move(sent.lease_fd),
                                         .doorbell = UniqueFd(::dup(doorbell.get()))},
                                        0));
    child = ::fork();
    if (child == 0) read_all(*reader, batches, spin, pause);
  }

  [[noreturn]] void read_all(RingReader& reader, std::uint64_t batches, std::chrono::nanoseconds spin,
                             bool pause) {
    const std::uint64_t begin = thread_cpu_ns();
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto grant = reader.next(0, 10s, spin, nullptr);
      if (!grant || grant->batch != i) ::_exit(1);
      if (pause) report->latency_ns[report->count++] = monotonic_ns() - reader.slot(grant->slot).publish_ns;
      reader.ack(*grant);
    }
    report->cpu_ns = thread_cpu_ns() - begin;
    ::_exit(0);
  }

  void finish() {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) {
      fmt::print(stderr, "the reader failed\n");
      std::exit(1);
    }
  }

  void hand_over(std::uint32_t slot, std::uint64_t batch) {
    LoanedSlot loaned = ring->loan(slot);
    ring->publish(std::move(loaned), {.batch = batch, .rows = 64, .valid_rows = 64});
    ring->grant(0, slot, 0);
  }

  std::size_t take_acks(std::vector<TakenAck>& acks) {
    acks.clear();
    if (!ring->take_acks(0, acks)) std::exit(1);
    for (const TakenAck& ack : acks) ring->release(ack.slot);
    return acks.size();
  }

  void sleep_for_acks() {
    ring->set_idle(kServerRests);
    pollfd entry{.fd = doorbell.get(), .events = POLLIN, .revents = 0};
    if (!ring->has_acks(0) && ::poll(&entry, 1, 100) > 0) {
      std::uint64_t rung = 0;
      [[maybe_unused]] const ssize_t got = ::read(doorbell.get(), &rung, sizeof rung);
    }
    ring->set_idle(kServerAwake);
  }
};

void measure_cpu(std::uint64_t batches, std::chrono::nanoseconds spin) {
  Bench bench(batches, spin, false);
  std::vector<TakenAck> acks;
  const std::uint64_t begin = thread_cpu_ns();
  std::uint64_t published = 0, returned = 0;
  while (returned < batches) {
    const std::uint64_t before = returned;
    returned += bench.take_acks(acks);
    for (std::uint32_t s = 0; s < kSlots && published < batches; ++s)
      if (bench.ring->state(s) == SlotState::kFree) bench.hand_over(s, published++);
    if (returned == before) bench.sleep_for_acks();
  }
  const std::uint64_t server = thread_cpu_ns() - begin;
  bench.finish();
  fmt::print("hand-over  spin {:>3} us  batches {}  server {} ns  client {} ns  both {} ns CPU per batch\n",
             spin / 1us, batches, server / batches, bench.report->cpu_ns / batches,
             (server + bench.report->cpu_ns) / batches);
}

void measure_latency(std::uint64_t batches, std::chrono::nanoseconds spin) {
  Bench bench(batches, spin, true);
  std::vector<TakenAck> acks;
  for (std::uint64_t i = 0; i < batches; ++i) {
    ::usleep(300);  // the client then sleeps, unless it spins longer
    bench.hand_over(static_cast<std::uint32_t>(i % kSlots), i);
    while (bench.take_acks(acks) == 0) bench.sleep_for_acks();
  }
  bench.finish();
  std::vector<std::uint64_t> sorted(bench.report->latency_ns, bench.report->latency_ns + bench.report->count);
  std::ranges::sort(sorted);
  const auto at = [&](double q) {
    return static_cast<double>(sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))]) /
           1e3;
  };
  fmt::print(
      "wake       spin {:>3} us  batches {}  p50 {:.1f} us  p90 {:.1f} us  p99 {:.1f} us  client CPU {:.1f} "
      "us per batch\n",
      spin / 1us, batches, at(0.5), at(0.9), at(0.99),
      static_cast<double>(bench.report->cpu_ns) / static_cast<double>(batches) / 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t batches = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200'000;
  const auto spin = std::chrono::microseconds(argc > 2 ? std::atoi(argv[2]) : 20);
  const std::uint64_t wakes = std::clamp<std::uint64_t>(batches / 40, 100, 1 << 16);
  measure_cpu(batches, 0us);
  measure_cpu(batches, spin);
  measure_latency(wakes, 0us);
  measure_latency(wakes, spin);
  measure_latency(wakes, 400us);
}
