// Collector: the metrics of network reads.
#include <prometheus/metric_family.h>

#include "server/session/collector.h"

namespace headrace::server::session {

std::vector<prometheus::MetricFamily> Collector::with_network(
    std::vector<prometheus::MetricFamily> families) const {
  const auto each = [&](const char* name, const char* help, auto value) {
    prometheus::MetricFamily& family =
        families.emplace_back(prometheus::MetricFamily{name, help, prometheus::MetricType::Counter, {}});
    for (const assembly::RemoteUse& use : remotes_) {
      prometheus::ClientMetric metric;
      metric.label = {{"source", use.source}};
      metric.counter.value = static_cast<double>(value(use.remote->counts()));
      family.metric.push_back(std::move(metric));
    }
  };
  each("headrace_network_requests_total", "HTTP requests of a source, including retries.",
       [](const remote::Counts& counts) { return counts.requests; });
  each("headrace_network_retries_total", "HTTP requests of a source that repeat one after a transient fault.",
       [](const remote::Counts& counts) { return counts.retries; });
  each("headrace_network_bytes_total", "Bytes of bodies received.",
       [](const remote::Counts& counts) { return counts.bytes; });
  return families;
}

}  // namespace headrace::server::session
