// `headrace inspect`: shows the content of a packed database, or of any source.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "clientlib/base/human.h"
#include "server/pack/survey.h"
#include "server/source/formats/lmdb.h"
#include "server/verbs/dataset.h"
#include "server/verbs/progress.h"

namespace headrace::server::verbs {
namespace {

using nlohmann::json;

struct InspectArguments {
  DatasetArguments dataset;
  std::string sheet;
  bool as_json = false;
  unsigned threads = 0;
};

constexpr std::size_t kShownClasses = 10;

std::string_view name_of(source::Content content) {
  constexpr std::array<std::string_view, 4> kNames = {"encoded image", "pixels", "values", "ragged values"};
  return kNames.at(static_cast<std::size_t>(content));
}

/// Describes only the database.
json describe(const store::Found& found) {
  const store::Meta& meta = found.meta;
  return {{"complete", meta.complete},
          {"packed", found.packed},
          {"count", meta.count},
          {"store", store::name_of(meta.options.storing)},
          {"compress", store::name_of(meta.options.compression)},
          {"resize", store::to_string(meta.options.resize)},
          {"fingerprint", fmt::format("{:016x}", meta.fingerprint())},
          {"source_fingerprint", fmt::format("{:016x}", meta.source_fingerprint)},
          {"file_bytes", found.file_bytes},
          {"raw_bytes", meta.raw_bytes},
          {"undecodable", meta.undecodable},
          {"first_undecodable", meta.first_undecodable}};
}

void add_survey(json& out, const source::Source& source, const pack::Survey& survey) {
  out["count"] = source.size();
  out["fingerprint"] = fmt::format("{:016x}", source.fingerprint());
  out["unreadable"] = survey.unreadable;
  const std::uint64_t good = std::max<std::uint64_t>(survey.samples - survey.unreadable, 1);
  for (std::size_t f = 0; f < survey.fields.size(); ++f) {
    const source::SourceField& field = source.fields()[f];
    const pack::FieldSizes& sizes = survey.fields[f];
    out["fields"].push_back({{"name", field.name},
                             {"content", name_of(field.content)},
                             {"channels", field.channels},
                             {"height", field.height},
                             {"width", field.width},
                             {"total", sizes.total},
                             {"mean", sizes.total / good},
                             {"min", sizes.least},
                             {"max", sizes.most}});
    if (out.contains("complete")) out["fields"].back()["stored"] = sizes.stored;
  }
  // Ordered by the number of samples, then by label.
  std::vector<std::pair<std::int64_t, std::uint64_t>> labels(survey.per_label.begin(),
                                                             survey.per_label.end());
  std::stable_sort(labels.begin(), labels.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  out["classes"] = labels.size();
  out["largest_classes"] = json::array();
  for (std::size_t i = 0; i < std::min(labels.size(), kShownClasses); ++i) {
    const auto label = static_cast<std::size_t>(labels[i].first);
    const bool named = label < source.class_names().size();
    out["largest_classes"].push_back(
        {{"label", labels[i].first},
         {"name", named ? source.class_names()[label] : std::to_string(labels[i].first)},
         {"samples", labels[i].second}});
  }
}

void print(const std::string& path, const json& what) {
  const auto number = [](const json& value) { return value.get<std::uint64_t>(); };
  const auto text = [](const json& value) { return value.get<std::string>(); };
  if (what.contains("complete")) {
    const bool complete = what["complete"].get<bool>();
    const auto count = number(what["count"]);
    fmt::print("{}: packed, {}, {}\n", path,
               count > 0 ? count_of(count, "sample") : "an unknown number of samples",
               complete ? "complete"
                        : fmt::format("NOT complete: {} are there; run the same headrace pack again",
                                      number(what["packed"])));
    fmt::print("store: {}, compress: {}, resize: {}\nfile: {}\n", text(what["store"]), text(what["compress"]),
               text(what["resize"]), share_of_raw(number(what["file_bytes"]), number(what["raw_bytes"])));
    if (number(what["undecodable"]) > 0) {
      fmt::print("bad samples, packed unchanged: {}; the first:\n", number(what["undecodable"]));
      for (const json& bad : what["first_undecodable"]) fmt::print("  {}\n", text(bad));
    }
  } else {
    fmt::print("{}: {}\n", path, count_of(number(what["count"]), "sample"));
  }
  fmt::print("fingerprint: {}\n", text(what["fingerprint"]));
  if (!what.contains("fields")) return;
  if (number(what["unreadable"]) > 0) fmt::print("unreadable samples: {}\n", number(what["unreadable"]));
  for (const json& field : what["fields"])
    fmt::print("field {}: {}, {} in all, {} on average, {} to {}\n", text(field["name"]),
               text(field["content"]), human_bytes(number(field["total"])),
               human_bytes(number(field["mean"])), human_bytes(number(field["min"])),
               human_bytes(number(field["max"])));
  if (number(what["classes"]) == 0) return;
  fmt::print("classes: {}, the largest:\n", number(what["classes"]));
  for (const json& entry : what["largest_classes"])
    fmt::print("  {:>10}  {}\n", number(entry["samples"]), text(entry["name"]));
}

Result<void> write_sheet(const source::Source& source, const std::string& path) {
  const auto sheet = pack::contact_sheet(source);
  if (!sheet) return fail(sheet.error());
  return write_file(path, std::as_bytes(std::span(*sheet)));
}

Result<json> gather(const InspectArguments& arguments) {
  json out = json::object();
  const bool packed = is_lmdb(arguments.dataset.path);
  if (packed) {
    const auto found = store::inspect(arguments.dataset.path);
    if (!found) return fail(found.error());
    out = describe(*found);
    if (!found->meta.complete) {
      if (!arguments.sheet.empty())
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("{}: is not complete, so no sheet can be made", arguments.dataset.path));
      return out;
    }
  }
  const auto source = packed ? source::open_lmdb({arguments.dataset.path}) : arguments.dataset.open();
  if (!source) return fail(source.error());
  Result<pack::Survey> survey;
  {
    Progress progress("inspect", 0, (*source)->size());
    const unsigned threads = threads_or_all(arguments.threads);
    const auto on_progress = [&](std::uint64_t done, std::uint64_t bytes) { progress.update(done, bytes); };
    if (packed) {
      const auto store = store::Store::open(arguments.dataset.path, store::Store::Reading::kRandom);
      if (!store) return fail(store.error());
      survey = pack::survey(**store, threads, on_progress);
    } else {
      survey = pack::survey(**source, threads, on_progress);
    }
  }
  if (!survey) return fail(survey.error());
  add_survey(out, **source, *survey);
  if (!arguments.sheet.empty())
    if (auto written = write_sheet(**source, arguments.sheet); !written) return fail(written.error());
  return out;
}

int inspect(const InspectArguments& arguments) {
  const auto what = gather(arguments);
  if (!what) return report(what.error());
  if (arguments.as_json) {
    print_as_json(*what);
  } else {
    print(arguments.dataset.path, *what);
    if (!arguments.sheet.empty()) fmt::print("sheet: {}\n", arguments.sheet);
  }
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* verb = app.add_subcommand(
      "inspect", "Describe a packed database or another dataset: sizes, classes, a sheet of its images");
  arguments->dataset.add_to(*verb);
  verb->add_option("--sheet", arguments->sheet, "Write a sheet of 8 x 8 images to this PNG file")
      ->type_name(kPath);
  add_json(*verb, arguments->as_json);
  verb->add_option("--threads", arguments->threads, "Number of threads (default: one for each available CPU)")
      ->check(CLI::Range(1U, 4096U));
  verb->callback([arguments, &exit_code] { exit_code = inspect(*arguments); });
}

}  // namespace headrace::server::verbs
