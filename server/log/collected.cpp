#include "server/log/collected.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "server/log/logger.h"

namespace headrace::server::log {

class Collected::Lines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::vector<std::string> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(texts_, {});
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& record) override {
    texts_.emplace_back(record.payload.data(), record.payload.size());
  }
  void flush_() override {}

 private:
  std::vector<std::string> texts_;
};

Collected::Collected() : lines_(std::make_shared<Lines>()) {
  lines_->set_level(spdlog::level::warn);
  logger().sinks().push_back(lines_);
}

Collected::~Collected() {
  auto& sinks = logger().sinks();
  sinks.erase(std::remove(sinks.begin(), sinks.end(), lines_), sinks.end());
}

std::vector<std::string> Collected::take() {
  return lines_->take();
}

}  // namespace headrace::server::log
