// The output of `headrace check`: lines as they come or, with --json, one document at the end.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/log/collected.h"
#include "server/verbs/fitness.h"

namespace headrace::server::verbs {

class Told {
 public:
  explicit Told(bool as_json) : as_json_(as_json) {
    if (as_json) logged_.emplace();
  }

  /// Each call is one message, thus one item of the document.
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    add(fmt::format(format, std::forward<Args>(args)...));
  }
  /// From now on, lines and judgments are about this stream: items of the document name it.
  void begin_stream(const std::string& name, const std::string& description);
  void end_stream() { stream_.clear(); }
  /// Also on stderr.
  void error(const Error& error);
  /// The same for the errors of a configuration, one a line: each is an item.
  void errors(const Error& error);
  /// Nothing if it is good, a warning, or an error. `indent`: of the warning.
  void judge(const Finding& finding, const char* indent = "");
  /// Adds a member to the document.
  void set(const char* key, nlohmann::json value) { document_[key] = std::move(value); }
  [[nodiscard]] bool sound() const { return status_ == 0; }
  /// False once a finding was kUnknown.
  [[nodiscard]] bool certain() const { return certain_; }
  /// Prints the document, even if there were errors, or how many errors there were. Returns the exit code of
  /// the first error.
  [[nodiscard]] int finish();

 private:
  void add(std::string text);
  void add_error(const Error& error, const std::vector<std::string>& messages);

  const bool as_json_;
  std::optional<log::Collected> logged_;
  int status_ = 0;
  bool certain_ = true;
  std::size_t errors_ = 0;
  std::string stream_;  ///< "stream `train`: ", or empty
  nlohmann::json document_ = {{"warnings", nlohmann::json::array()},
                              {"notes", nlohmann::json::array()},
                              {"errors", nlohmann::json::array()},
                              {"streams", nlohmann::json::array()}};
};

}  // namespace headrace::server::verbs
