// `headrace verify`: checks every record of a packed database.
#include "server/pack/verify.h"
#include "clientlib/base/human.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "server/verbs/dataset.h"
#include "server/verbs/progress.h"

namespace headrace::server::verbs {
namespace {

struct VerifyArguments {
  std::string path;
  bool decode = false, as_json = false;
  unsigned threads = 0;
};

int verify(const VerifyArguments& arguments) {
  const auto store = store::Store::open(arguments.path, store::Store::Reading::kInOrder);
  if (!store) return report(store.error());
  pack::VerifyReport found;
  {
    Progress progress("verify", 0, (*store)->size());
    found = pack::verify(**store, {threads_or_all(arguments.threads), arguments.decode},
                         [&](std::uint64_t done, std::uint64_t bytes) { progress.update(done, bytes); });
  }
  if (found.lost) return report(*found.lost);
  if (arguments.as_json) {
    nlohmann::json bad = nlohmann::json::array();
    for (const pack::BadRecord& one : found.first) bad.push_back({{"index", one.index}, {"error", one.what}});
    print_as_json({{"checked", found.checked},
                   {"bytes", found.bytes},
                   {"bad", found.bad},
                   {"first_bad", std::move(bad)}});
    return found.bad == 0 ? 0 : 3;
  }
  if (found.bad == 0) {
    const std::uint64_t bad = (*store)->meta().undecodable;
    fmt::print(
        "ok: {} samples ({}) checked{}, none damaged{}\n", found.checked, human_bytes(found.bytes),
        arguments.decode ? " and decoded" : "",
        bad > 0 ? fmt::format("; {} could not be decoded when they were packed (see headrace inspect)", bad)
                : "");
    return 0;
  }
  std::string list;
  for (const pack::BadRecord& bad : found.first) list += fmt::format("\n  {}: {}", bad.index, bad.what);
  return report({ErrorCode::kDatasetInvalid,
                 fmt::format("{}: {} of {} samples are damaged: pack the dataset again. The first {}:{}",
                             arguments.path, found.bad, found.checked, found.first.size(), list)});
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* verb = app.add_subcommand("verify", "Check every record of a packed database");
  verb->add_option("path", arguments->path, "Folder of the database")->type_name(kPath)->required();
  verb->add_flag("--decode", arguments->decode, "Also decode the images");
  add_json(*verb, arguments->as_json);
  verb->add_option("--threads", arguments->threads, "Number of threads (default: one for each available CPU)")
      ->check(CLI::Range(1U, 4096U));
  verb->callback([arguments, &exit_code] { exit_code = verify(*arguments); });
}

}  // namespace headrace::server::verbs
