// Metric families under construction, in the order in which they are opened.
#pragma once

#include <prometheus/metric_family.h>

#include <utility>
#include <vector>

namespace headrace::server::session {

class Families {
 public:
  /// The reference is valid until the next family is opened.
  prometheus::MetricFamily& open(const char* name, const char* help, prometheus::MetricType type) {
    families_.push_back(prometheus::MetricFamily{name, help, type, {}});
    return families_.back();
  }
  std::vector<prometheus::MetricFamily> take() { return std::move(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

using Labels = std::vector<prometheus::ClientMetric::Label>;

/// Adds to a family of counters or gauges.
inline void add(prometheus::MetricFamily& family, Labels labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == prometheus::MetricType::Counter)
    metric.counter.value = value;
  else
    metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

}  // namespace headrace::server::session
