#include "server/source/combine/split.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "server/described/names.h"
#include "server/sampler/order.h"
#include "server/source/combine/path_list.h"
#include "server/source/combine/sample_list.h"
#include "server/source/labels.h"

namespace headrace::server::source {
namespace {

using Indices = std::map<std::string, std::vector<std::uint64_t>>;

std::string called(const std::string& part) {
  return part.empty() ? "subset: it" : fmt::format("split: part \"{}\"", part);
}

Result<Indices> choose(const Source& whole, const SplitFractions& how) {
  double sum = 0;
  for (const auto& [part, fraction] : how.parts) {
    if (!(fraction > 0 && fraction <= 1))
      return fail(
          ErrorCode::kConfigInvalid,
          fmt::format("{} is a fraction of {}; it must be above 0 and at most 1", called(part), fraction));
    sum += fraction;
  }
  constexpr double kRounding = 1e-9;
  if (sum > 1 + kRounding)
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("split: the fractions add up to {}, more than 1", sum));
  const std::uint64_t n = whole.size();
  const sampler::Permutation order(n, how.seed, 0);
  Indices out;
  double until = 0;
  std::uint64_t begin = 0;
  for (const auto& [part, fraction] : how.parts) {
    until += fraction;
    const double edge =
        std::abs(until - 1) < kRounding ? static_cast<double>(n) : std::round(until * static_cast<double>(n));
    const auto end = std::min(n, static_cast<std::uint64_t>(edge));
    auto& indices = out[part];
    for (; begin < end; ++begin) indices.push_back(order(begin));
    std::sort(indices.begin(), indices.end());
  }
  return out;
}

Result<Indices> choose(const Source& whole, const SplitClasses& how) {
  if (!whole.labelled())
    return fail(ErrorCode::kConfigInvalid, "chosen by classes, but the source's samples have none");
  const auto& names = whole.class_names();
  std::vector<const std::string*> part_of(names.size());
  for (const auto& [part, classes] : how.parts) {
    for (const auto& name : classes) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end())
        return fail(ErrorCode::kConfigInvalid,
                    fmt::format("{} names {}", called(part), unknown_class(name, names)));
      auto& owner = part_of[static_cast<std::size_t>(found - names.begin())];
      if (owner != nullptr)
        return fail(ErrorCode::kConfigInvalid,
                    *owner == part
                        ? fmt::format("{} names class \"{}\" twice", called(part), name)
                        : fmt::format("split: class \"{}\" is in two parts, \"{}\" and \"{}\"; parts must be "
                                      "disjoint",
                                      name, *owner, part));
      owner = &part;
    }
  }
  Indices out;
  for (const auto& [part, classes] : how.parts) out[part];
  for (std::uint64_t i = 0; i < whole.size(); ++i) {
    const auto* owner = part_of.at(static_cast<std::size_t>(whole.label(i)));
    if (owner != nullptr) out[*owner].push_back(i);
  }
  return out;
}

Result<Indices> choose(const Source& whole, const SplitLists& how) {
  return read_path_lists(whole, how.parts);
}

}  // namespace

Part::Part(std::shared_ptr<const Source> whole, std::vector<std::uint64_t> indices)
    : ForwardingSource(std::move(whole)),
      indices_(std::move(indices)),
      fingerprint_(XXH3_64bits_withSeed(indices_.data(), indices_.size() * sizeof(std::uint64_t),
                                        real().fingerprint())) {}

bool Part::view_samples(SampleView& view) const {
  for (std::uint64_t& index : view.indices) index = indices_.at(index);
  return real().view_samples(view);
}

Result<Parts> split(const std::shared_ptr<const Source>& whole, const Split& how) {
  auto chosen = std::visit([&](const auto& way) { return choose(*whole, way); }, how);
  if (!chosen) return fail(std::move(chosen.error()));
  Parts out;
  for (auto& [part, indices] : *chosen) {
    if (indices.empty())
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("{} has no samples (the source has {}); give it a larger share", called(part),
                              whole->size()));
    out[part] = std::make_shared<Part>(whole, std::move(indices));
  }
  return out;
}

Result<std::shared_ptr<const Source>> subset(const std::shared_ptr<const Source>& whole, const Split& how) {
  auto parts = split(whole, how);
  if (!parts) return fail(std::move(parts.error()));
  return parts->at("");
}

Result<std::shared_ptr<const Source>> first_samples(const std::shared_ptr<const Source>& whole,
                                                    std::uint64_t count) {
  if (count == 0 || count > whole->size())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("subset: the first {} samples, but there are {}", count, whole->size()));
  std::vector<std::uint64_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  return std::make_shared<Part>(whole, std::move(indices));
}

Result<std::shared_ptr<const Source>> listed_samples(const std::shared_ptr<const Source>& whole,
                                                     const std::filesystem::path& file) {
  auto indices = read_sample_list(*whole, file);
  if (!indices) return fail(std::move(indices.error()));
  std::sort(indices->begin(), indices->end());
  const auto twice = std::adjacent_find(indices->begin(), indices->end());
  if (twice != indices->end())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{}: lists sample {} twice; a subset has each once (`repeat` has more)",
                            file.string(), whole->whole_index(*twice)));
  return std::make_shared<Part>(whole, std::move(*indices));
}

std::vector<std::string> part_names(const Split& split) {
  return std::visit(
      [](const auto& by) {
        std::vector<std::string> out;
        for (const auto& [name, ignored] : by.parts) out.push_back(name);
        return out;
      },
      split);
}

namespace {

/// As written in the configuration: exactly one is set.
struct WrittenSplit {
  std::uint64_t seed = 0;
  std::optional<std::map<std::string, double>> fractions;
  std::optional<std::map<std::string, std::vector<std::string>>> classes;
  std::optional<std::map<std::string, std::filesystem::path>> lists;

  static described::Description<WrittenSplit> description() {
    using Self = WrittenSplit;
    using described::map;
    const auto part = described::name();
    return {"",
            "Named, disjoint parts: by exactly one of fractions, classes and lists.",
            {described::key("seed", &Self::seed, described::seed(), "Seed of `fractions`."),
             described::optional("fractions", &Self::fractions, map(described::number_above(0, 1), 1, part)),
             described::optional("classes", &Self::classes,
                                 map(described::list(described::class_name(), 1), 1, part)),
             described::optional("lists", &Self::lists, map(described::local_path(), 1, part),
                                 "Files of relative paths, one per line.")},
            check};
  }

  static void check(const WrittenSplit& split, const described::Json& map,
                    const described::Reading& reading) {
    if (!described::check_one_of(map, {"fractions", "classes", "lists"}, "fractions, classes or lists",
                                 reading))
      return;
    double sum = 0;
    if (split.fractions)
      for (const auto& [part, fraction] : *split.fractions) sum += fraction;
    if (sum > 1 + 1e-9)
      reading.wrong("fractions", fmt::format("the fractions add up to {:.6g}, more than 1", sum));
    if (!split.classes) return;
    std::map<std::string, std::string> owner;
    for (const auto& [part, classes] : *split.classes)
      for (std::size_t i = 0; i < classes.size(); ++i)
        if (const auto [before, fresh] = owner.emplace(classes[i], part); !fresh)
          reading.wrong(described::Pointer("/classes") / part / std::to_string(i),
                        fmt::format("class \"{}\" is in part \"{}\" already; parts are disjoint", classes[i],
                                    before->second));
  }
};

}  // namespace

described::Codec<Split> split_codec() {
  return described::named(
      "split",
      described::converted<Split, WrittenSplit>(
          described::object<WrittenSplit>(),
          [](const WrittenSplit& written) -> Split {
            if (written.classes) return SplitClasses{*written.classes};
            if (written.lists) return SplitLists{*written.lists};
            return SplitFractions{written.fractions.value_or(std::map<std::string, double>{}), written.seed};
          },
          [](const Split& split) {
            WrittenSplit out;
            if (const auto* by = std::get_if<SplitFractions>(&split))
              out.seed = by->seed, out.fractions = by->parts;
            if (const auto* by = std::get_if<SplitClasses>(&split)) out.classes = by->parts;
            if (const auto* by = std::get_if<SplitLists>(&split)) out.lists = by->parts;
            return out;
          }));
}

}  // namespace headrace::server::source
