#include "server/verbs/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/assembly/open_source.h"
#include "server/config/cpus.h"
#include "server/remote/url.h"
#include "server/source/detect/detect.h"

namespace headrace::server::verbs {

bool is_config(const std::filesystem::path& path) {
  std::error_code status;
  if (remote::is_url(path.string())) return false;
  if (std::filesystem::is_directory(path, status) || source::is_dataset_file(path)) return false;
  return std::filesystem::exists(path, status) || path.extension() == ".yaml" || path.extension() == ".yml";
}

bool is_lmdb(const std::filesystem::path& path) {
  std::error_code status;
  return std::filesystem::is_directory(path, status) && std::filesystem::exists(path / "data.mdb", status);
}

void DatasetArguments::add_to(CLI::App& verb) {
  verb.add_option("src", path, "A dataset's folder or file, or a configuration (YAML)")
      ->type_name(kPath)
      ->required();
  verb.add_option("--source", source, "The source to use, if the configuration has several");
  verb.add_option("--part", part, "A part of a source with a split (default: the whole source)");
}

Result<std::shared_ptr<const source::Source>> DatasetArguments::open() const {
  Result<config::Config> config;
  if (is_config(path)) {
    if (auto text = not_data(path); !text) return fail(text.error());
    config = config::load(path);
  } else {
    auto proposal = source::propose(path);
    if (!proposal) return fail(proposal.error());
    config = config::parse(proposal->config, "proposal.yaml");
  }
  if (!config) return fail(config.error());
  auto& sources = config->sources;
  std::vector<std::string> names;
  names.reserve(sources.size());
  for (const auto& [name, ignored] : sources) names.push_back(name);
  const auto refuse = [](const std::string& what) { return fail(ErrorCode::kConfigInvalid, what); };
  if (source.empty() && names.size() > 1)
    return refuse(
        fmt::format("{} has several sources: choose by --source: {}", path, fmt::join(names, ", ")));
  const std::string& chosen = source.empty() ? names.at(0) : source;
  const auto found = sources.find(chosen);
  if (found == sources.end())
    return refuse(
        fmt::format("{}: there is no source \"{}\"; there are: {}", path, chosen, fmt::join(names, ", ")));
  if (found->second.feed() != nullptr)
    return refuse(
        fmt::format("{}: source \"{}\" is a feed: it has samples only while it is served", path, chosen));
  auto& split = found->second.split;
  if (part.empty()) {
    split.reset();
  } else {
    const auto parts = split ? source::part_names(*split) : std::vector<std::string>();
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      return refuse(
          parts.empty()
              ? fmt::format("{}: source \"{}\" has no split, so no parts; leave --part out", path, chosen)
              : fmt::format("{}: source \"{}\" has no part \"{}\"; parts: {}", path, chosen, part,
                            fmt::join(parts, ", ")));
  }
  return assembly::Sources(sources).open(chosen, part);
}

unsigned threads_or_all(unsigned threads) {
  return threads > 0 ? threads : config::default_threads();
}

}  // namespace headrace::server::verbs
