#include "server/verbs/told.h"

#include <algorithm>
#include <string_view>

#include "clientlib/base/human.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

/// A line that begins with a space belongs to the one above it.
std::vector<std::string> divided(const std::string& message) {
  std::vector<std::string> out;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = message.find('\n', begin);
    const std::string line = message.substr(begin, end - begin);
    if (out.empty() || (!line.empty() && line.front() != ' '))
      out.push_back(line);
    else
      out.back() += "\n" + line;
  }
  return out;
}

}  // namespace

void Told::add(std::string text) {
  constexpr std::string_view kWarning = "warning: ", kBlank = " \n";
  if (!as_json_) return fmt::print("{}", printable(text));
  text.erase(0, std::min(text.find_first_not_of(kBlank), text.size()));
  text.erase(text.find_last_not_of(kBlank) + 1);
  const bool warns = text.starts_with(kWarning);
  document_[warns ? "warnings" : "notes"].push_back(stream_ + (warns ? text.substr(kWarning.size()) : text));
}

void Told::begin_stream(const std::string& name, const std::string& description) {
  stream_ = fmt::format("stream `{}`: ", name);
  if (as_json_) return add(description);
  line("stream {}: {}\n", name, description);
}

void Told::add_error(const Error& error, const std::vector<std::string>& messages) {
  for (const std::string& message : messages)
    document_["errors"].push_back(Error{error.code, message}.to_string());
  errors_ += messages.size();
  const int code = report(error);
  if (status_ == 0) status_ = code;
}

void Told::error(const Error& error) {
  const Error named{error.code, stream_ + error.message};
  add_error(named, {named.message});
}

void Told::errors(const Error& error) {
  add_error(error, divided(error.message));
}

void Told::judge(const Finding& finding, const char* indent) {
  if (finding.health == Health::kBroken) return error(finding.error());
  if (finding.health == Health::kGood) return;
  if (finding.health == Health::kUnknown) certain_ = false;
  const bool list = finding.found.find('\n') != std::string::npos;
  const std::string gap = finding.remedy.empty() ? "" : list ? fmt::format("\n{}  ", indent) : "; ";
  line("{}warning: {}{}{}\n", indent, finding.found, gap, finding.remedy);
}

int Told::finish() {
  if (!as_json_) {
    if (errors_ > 0) fmt::print("not ok, {}\n", count_of(errors_, "error"));
    return status_;
  }
  auto& warnings = document_["warnings"].get_ref<nlohmann::json::array_t&>();
  const std::vector<std::string> logged = logged_->take();  // most of them when the sources were opened
  warnings.insert(warnings.begin(), logged.begin(), logged.end());
  print_as_json(document_);
  return status_;
}

}  // namespace headrace::server::verbs
