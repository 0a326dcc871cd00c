// Measures a stream's work under the engine's lock for several numbers of attached clients. `hand over`: one
// batch, from the choice of its slot to the last client's ack. `fruitless`: one call of a worker that finds
// nothing to do. CPU time of this thread, without making rows.
//   lanes_bench [batches]
#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/bench/thread_cpu.h"
#include "tests/engine_fixture.h"

namespace {

using namespace headrace;
using namespace headrace::testing;

struct Client {
  wire::AttachReply reply;
  std::shared_ptr<ring::RingReader> reader;
};

class Bench {
 public:
  Bench(std::uint32_t lanes, Delivery delivery, bool detach) {
    StreamSetup setup = synthetic_stream("bench", 1 << 20, 64, lanes, delivery, 64);
    setup.ledger.detach = detach;
    stream_ = Stream::create(std::move(setup)).value();
    for (std::uint32_t lane = 0; lane < lanes; ++lane) attach(lane, delivery == Delivery::kShard ? lanes : 1);
  }

  /// Nanoseconds per batch.
  double hand_over(std::uint64_t batches) {
    fill();
    std::uint64_t spent = 0;
    for (std::uint64_t batch = 0; batch < batches;) {
      for (Client& client : clients_)
        if (const auto grant =
                client.reader->next(client.reply.seek, std::chrono::nanoseconds(0), {}, nullptr))
          client.reader->ack(*grant);
      batch += fill(&spent);
    }
    return static_cast<double>(spent) / static_cast<double>(batches);
  }

  /// Nanoseconds per fruitless call, while the ring is full.
  double fruitless(std::uint64_t looks) {
    fill();
    const std::uint64_t begin = thread_cpu_ns();
    for (std::uint64_t i = 0; i < looks; ++i) {
      const std::uint64_t now = ring::monotonic_ns();
      stream_->pump(now);
      if (stream_->next_job(now)) std::abort();
    }
    return static_cast<double>(thread_cpu_ns() - begin) / static_cast<double>(looks);
  }

 private:
  void attach(std::uint32_t lane, std::uint32_t world) {
    const std::string name = fmt::format("client-{}", lane);
    wire::OpenRequest request;
    request.stream = "bench";
    request.group = world > 1 ? "default" : name;
    request.client = name;
    request.rank = world > 1 ? lane : 0;
    request.world_size = world;
    Client client;
    if (!stream_->make_room(lane + 1)) std::abort();
    client.reply = stream_->lanes().open(request).value();
    auto attachment =
        stream_->lanes().attach(client.reply.lane, stream_->make_lease().value(), ring::monotonic_ns());
    client.reader =
        ring::RingReader::open(
            {ring::UniqueFd(::dup(attachment.data_fd)), ring::UniqueFd(::dup(attachment.control_fd)),
             std::move(attachment.lease_fd), ring::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))},
            client.reply.lane)
            .value();
    clients_.push_back(std::move(client));
  }

  /// Makes batches until the ring is full, as a worker does; adds the time under the lock. Returns how many.
  std::uint64_t fill(std::uint64_t* spent = nullptr) {
    std::uint64_t made = 0;
    for (;; ++made) {
      std::uint64_t begin = thread_cpu_ns();
      const std::uint64_t now = ring::monotonic_ns();
      stream_->pump(now);
      const auto job = stream_->next_job(now);
      if (spent) *spent += thread_cpu_ns() - begin;
      if (!job) break;
      if (!job->work(scratch_, counters_, ~0ULL)) std::abort();
      begin = thread_cpu_ns();
      stream_->complete(*job, counters_);
      if (spent) *spent += thread_cpu_ns() - begin;
    }
    (void)stream_->lanes().take_wakes();
    return made;
  }

  std::unique_ptr<Stream> stream_;
  std::vector<Client> clients_;
  server::exec::RowScratch scratch_;
  server::metrics::StreamCounters counters_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t batches = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000;
  const struct {
    const char* name;
    Delivery delivery;
    bool detach;
  } kinds[] = {{"broadcast, detach", Delivery::kBroadcast, true},
               {"broadcast, wait", Delivery::kBroadcast, false},
               {"shard", Delivery::kShard, true}};
  fmt::print("{:<18} {:>6} {:>18} {:>18}\n", "delivery", "lanes", "hand over, us", "fruitless, us");
  for (const auto& kind : kinds)
    for (const std::uint32_t lanes : {1U, 8U, 64U}) {
      Bench bench(lanes, kind.delivery, kind.detach);
      const double hand_over = bench.hand_over(batches), fruitless = bench.fruitless(batches);
      fmt::print("{:<18} {:>6} {:>18.2f} {:>18.2f}\n", kind.name, lanes, hand_over / 1000, fruitless / 1000);
    }
}
