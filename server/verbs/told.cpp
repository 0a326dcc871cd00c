#include "server/verbs/told.h"

#include <algorithm>
#include <string_view>

#include "server/verbs/verbs.h"

namespace headrace::server::verbs {

void Told::add(std::string text) {
  constexpr std::string_view kWarning = "warning: ", kBlank = " \n";
  if (!as_json_) return fmt::print("{}", printable(text));
  text.erase(0, std::min(text.find_first_not_of(kBlank), text.size()));
  text.erase(text.find_last_not_of(kBlank) + 1);
  const bool warns = text.starts_with(kWarning);
  document_[warns ? "warnings" : "notes"].push_back(warns ? text.substr(kWarning.size()) : text);
}

void Told::error(const Error& error) {
  document_["errors"].push_back(error.to_string());
  const int code = report(error);
  if (status_ == 0) status_ = code;
}

void Told::judge(const Finding& finding, const char* indent) {
  if (finding.health == Health::kBroken) return error(finding.error());
  if (finding.health == Health::kGood) return;
  line("{}warning: {}{}{}\n", indent, finding.found, finding.remedy.empty() ? "" : "; ", finding.remedy);
}

int Told::finish() const {
  if (as_json_) print_as_json(document_);
  return status_;
}

}  // namespace headrace::server::verbs
