// A hostile client: an input patches its lease segment while it holds batches. Input: a byte of flags (1: ack
// the batch first; 2: also look for stuck clients an hour later), then patches.
#include "clientlib/ring/layout.h"
#include "tests/engine_fixture.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/quiet.h"

namespace headrace {
namespace {

using server::exec::Stream;
using testing::Engine;
using testing::RingClient;

constexpr std::uint64_t kHour = 3'600'000'000'000;

/// The good client's next batch, which is the one after its last.
void read_next(RingClient& good, Cursor& last) {
  const auto grant = good.next();
  require(grant.has_value(), "a client beside a hostile one gets its batches");
  require((grant->epoch == last.epoch && grant->batch == last.batch + 1) ||
              (grant->epoch == last.epoch + 1 && grant->batch == 0),
          "a client gets each batch once, in order");
  last = {grant->epoch, 0, grant->batch};
  good.reader().ack(*grant);
}

void beat(RingClient& client) {
  client.reader().lease().heartbeat_ns.fetch_add(1);
}

/// What the server does with leases: reads acks, looks for stuck clients, shows figures. True: the hostile
/// client is dropped.
bool serve(Engine& engine, RingClient& good, const RingClient& bad, bool later) {
  const std::uint32_t lane = bad.opened().lane;
  return engine.with(bad.stream(), [&](Stream& stream) {
    (void)stream.pump(ring::monotonic_ns());
    const auto errors = stream.lanes().protocol_errors();
    for (const auto& [index, why] : errors)
      require(index == lane && !why.empty(), "only the hostile client is dropped, with a reason");
    const std::uint64_t now = ring::monotonic_ns();
    require(stream.fence_stuck(now, kHour).empty(), "a client with a new heartbeat is not stuck");
    beat(good);
    if (later)
      require(stream.fence_stuck(now + 2 * kHour, kHour) == std::vector<std::uint32_t>{lane},
              "a client without a new heartbeat is stuck, and only that one");
    stream.publish_figures();
    return !errors.empty();
  });
}

/// The server believes no client that it is farther than its grants.
void check_cursors(Engine& engine, const RingClient& bad) {
  const auto cursors = engine.inspect(bad.stream(), [](const Stream& s) { return s.lanes().cursors("bad"); });
  require(cursors.has_value() && cursors->lanes.size() == 1, "a client's cursors can be asked for");
  const auto& lane = cursors->lanes[0];
  require(std::pair(lane.consumed.epoch, lane.consumed.batch) <=
              std::pair(lane.granted.epoch, lane.granted.batch),
          "a client has consumed at most what it was granted");
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  fuzz::log_nothing();
  static const auto engine =
      headrace::testing::start_engine({headrace::testing::synthetic_stream("s", 64, 8, 2)}, 1);
  static RingClient good(*engine, "s", "good");
  static Cursor last{0, 0, ~std::uint64_t{0}};
  fuzz::Input input(data, size);
  const auto flags = input.take<std::uint8_t>();
  {
    RingClient bad(*engine, "s", "bad");
    const auto granted = bad.next();
    require(granted.has_value(), "an attached client gets a batch");
    if (flags % 2) bad.reader().ack(*granted);
    fuzz::patch(input, {reinterpret_cast<std::uint8_t*>(&bad.reader().lease()), sizeof(ring::LeaseBlock)});
    beat(good);
    const bool drops = serve(*engine, good, bad, (flags & 2) != 0);
    if (!drops) check_cursors(*engine, bad);
  }
  read_next(good, last);
  read_next(good, last);
  return 0;
}
