// What `headrace check` prints: lines at once or, with --json, one document at the end.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/verbs/fitness.h"

namespace headrace::server::verbs {

class Told {
 public:
  explicit Told(bool as_json) : as_json_(as_json) {}

  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    add(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Also on stderr.
  void error(const Error& error);
  /// Nothing if it is good, a warning, or an error. `indent`: of the warning.
  void judge(const Finding& finding, const char* indent = "");
  /// Adds a member to the document.
  void set(const char* key, nlohmann::json value) { document_[key] = std::move(value); }
  [[nodiscard]] bool sound() const { return status_ == 0; }
  /// Prints the document, even if there were errors. Returns the exit code of the first error.
  [[nodiscard]] int finish() const;

 private:
  void add(std::string text);

  const bool as_json_;
  int status_ = 0;
  nlohmann::json document_ = {{"warnings", nlohmann::json::array()},
                              {"notes", nlohmann::json::array()},
                              {"errors", nlohmann::json::array()},
                              {"streams", nlohmann::json::array()}};
};

}  // namespace headrace::server::verbs
