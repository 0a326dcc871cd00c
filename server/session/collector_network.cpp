// Collector: network reads, and rows that other nodes make.
#include <prometheus/metric_family.h>

#include <nlohmann/json.hpp>

#include "server/session/collector.h"
#include "server/session/families.h"

namespace headrace::server::session {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

void add_nodes(std::vector<MetricFamily>& families, const BridgeOrders::Figures& figures) {
  const auto one = [&](const char* name, const char* help, MetricType type, std::uint64_t value) {
    add(families.emplace_back(MetricFamily{name, help, type, {}}), {}, static_cast<double>(value));
  };
  const auto by_node = [&](const char* name, const char* help, MetricType type, auto value) {
    MetricFamily& family = families.emplace_back(MetricFamily{name, help, type, {}});
    for (const auto& [node, counts] : figures.nodes)
      add(family, {{"node", node}}, static_cast<double>(value(counts)));
  };
  one("headrace_bridge_connected", "1 while a bridge is connected, so that other nodes may make rows.",
      MetricType::Gauge, figures.connected);
  one("headrace_orders_open", "Batches ordered from other nodes.", MetricType::Gauge, figures.under_way);
  one("headrace_orders_late_total",
      "Orders that took so much longer than others that workers began to make their rows here.",
      MetricType::Counter, figures.late);
  one("headrace_orders_failed_total", "Orders that no other node made.", MetricType::Counter, figures.failed);
  one("headrace_samples_made_twice_total", "Samples made by another node whose copies here were used.",
      MetricType::Counter, figures.made_twice);
  by_node("headrace_node_samples_total", "Samples that this node made and that were used.",
          MetricType::Counter, [](const auto& node) { return node.samples; });
  by_node("headrace_node_received_bytes_total", "Bytes of samples received from this node over the network.",
          MetricType::Counter, [](const auto& node) { return node.traffic.received; });
  by_node("headrace_node_sent_bytes_total",
          "Bytes of encoded samples sent to this node over the network, so that it makes their rows.",
          MetricType::Counter, [](const auto& node) { return node.traffic.sent; });
  by_node("headrace_node_refused", "1 if this node made wrong rows and gets no further orders.",
          MetricType::Gauge, [](const auto& node) { return !node.refused.empty(); });
}

}  // namespace

nlohmann::json Collector::nodes_as_json() const {
  const BridgeOrders::Figures figures = orders_->figures();
  nlohmann::json nodes = nlohmann::json::array();
  for (const auto& [name, node] : figures.nodes)
    nodes.push_back({{"node", name},
                     {"samples", node.samples},
                     {"received_bytes", node.traffic.received},
                     {"sent_bytes", node.traffic.sent},
                     {"refused", node.refused.empty() ? nlohmann::json() : nlohmann::json(node.refused)}});
  return {{"connected", figures.connected},
          {"open", figures.under_way},
          {"late", figures.late},
          {"failed", figures.failed},
          {"samples_made_twice", figures.made_twice},
          {"nodes", std::move(nodes)}};
}

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
  add_nodes(families, orders_->figures());
  return families;
}

}  // namespace headrace::server::session
