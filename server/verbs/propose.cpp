#include "server/verbs/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "clientlib/base/human.h"
#include "server/assembly/assemble.h"
#include "server/config/config.h"
#include "server/log/log.h"
#include "server/remote/url.h"
#include "server/source/detect/detect.h"
#include "server/verbs/fitness.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

/// Classes of `one` that `other` lacks, the first few.
std::string only_in(const StreamInfo& one, const StreamInfo& other) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> names;
  for (const std::string& name : one.classes)
    if (std::find(other.classes.begin(), other.classes.end(), name) == other.classes.end())
      names.push_back(name);
  if (names.empty()) return {};
  const std::size_t total = names.size();
  names.resize(std::min(total, kMost));
  return fmt::format("; only in {}: {}{}", one.name, fmt::join(names, ", "), total > kMost ? ", ..." : "");
}

/// A label is an index into a stream's own classes: it means the same in both only if one list of classes
/// begins the other. An evaluated set may lack classes at the end, but not have additional ones.
std::string other_classes(const StreamInfo& trained, const StreamInfo& shown) {
  const auto& own = trained.classes;
  if (own.empty() || shown.classes.empty() ||
      (shown.classes.size() <= own.size() &&
       std::equal(shown.classes.begin(), shown.classes.end(), own.begin())))
    return {};
  return fmt::format(
      "warning: {} has other classes than {}, so a label does not mean the same in both{}{}. Give both "
      "the same class folders, or a `relabel` with one list of `classes` over each\n",
      shown.name, trained.name, only_in(trained, shown), only_in(shown, trained));
}

/// Reports bad samples among a few of each stream. Returns the exit code.
int try_streams(const assembly::Assembly& assembly, const config::Config& config) {
  int code = 0;
  for (const exec::StreamSetup& setup : assembly.streams) {
    Finding samples = judge_samples(setup, config, false);
    samples.found = fmt::format("stream `{}`: {}", setup.info.name, samples.found);
    if (samples.health == Health::kBroken)
      code = std::max(code, report(samples.error()));
    else if (samples.health != Health::kGood)
      fmt::print(stderr, "warning: {}\n", printable(samples.error().message));
  }
  return code;
}

/// If the dataset was given by a relative path, so are its paths in the configuration, which is saved here.
std::string as_given(const std::filesystem::path& dataset, std::string config) {
  std::error_code unknown;
  const auto here = std::filesystem::current_path(unknown);
  if (unknown || dataset.is_absolute() || remote::is_url(dataset.string())) return config;
  config.insert(config.find("sources:\n"), "# Relative paths begin in this file's folder.\n");
  return source::relative_to(here, std::move(config));
}

}  // namespace

int propose(const std::string& path) {
  auto proposal = source::propose(path);
  if (!proposal) return report(proposal.error());
  auto config = config::parse(proposal->config, "proposal.yaml");
  if (!config) return report(config.error());
  auto assembly = assembly::assemble(*config);
  if (!assembly) return report(assembly.error());
  bool adapted = false;
  for (const exec::StreamSetup& setup : assembly->streams)
    adapted |= source::fit(*proposal, setup.info.name, setup.maker->source());
  if (adapted) {  // samples are tried with the transforms that are proposed
    config = config::parse(proposal->config, "proposal.yaml");
    if (!config) return report(config.error());
    log::set_level(log::Level::kError);  // the sources' warnings were printed before
    assembly = assembly::assemble(*config);
    log::set_level(log::Level::kInfo);
    if (!assembly) return report(assembly.error());
  }
  const std::string shown = remote::shown(path);
  fmt::print(stderr, "{}: {}\n", shown, proposal->found);
  for (const exec::StreamSetup& setup : assembly->streams)
    fmt::print(stderr, "  {}: {}, {}\n", setup.info.name, count_of(setup.info.samples, "sample"),
               count_of_classes(setup.info.classes.size()));
  for (const exec::StreamSetup& setup : assembly->streams)
    if (const auto train = std::find_if(assembly->streams.begin(), assembly->streams.end(),
                                        [](const auto& stream) { return stream.info.name == "train"; });
        train != assembly->streams.end())
      fmt::print(stderr, "{}", other_classes(train->info, setup.info));
  for (const std::string& note : source::notes_on(path, *proposal)) fmt::print(stderr, "note: {}\n", note);
  const int code = try_streams(*assembly, *config);
  fmt::print(stderr, "a configuration that serves it (headrace check {} > headrace.yaml):\n\n", shown);
  fmt::print("{}", as_given(path, std::move(proposal->config)));
  return code;
}

}  // namespace headrace::server::verbs
