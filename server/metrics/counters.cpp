#include "server/metrics/counters.h"

namespace headrace::server::metrics {

void StreamTotals::add(const StreamCounters& counters) {
  samples += counters.samples.get();
  batches += counters.batches.get();
  read_bytes += counters.read_bytes.get();
  published_bytes += counters.published_bytes.get();
  replaced += counters.replaced.get();
  shared += counters.shared.get();
  cached += counters.cached.get();
  pixels += counters.pixels.get();
  busy_ns += counters.busy_ns.get();
  remote += counters.remote.get();
  for (std::size_t i = 0; i < kReasons; ++i) errors[i] += counters.errors[i].get();
  for (std::size_t s = 0; s < kStages; ++s) {
    stages[s].total_ns += counters.stages[s].total_ns.get();
    for (std::size_t b = 0; b < stages[s].buckets.size(); ++b)
      stages[s].buckets[b] += counters.stages[s].buckets[b].get();
  }
}

}  // namespace headrace::server::metrics
