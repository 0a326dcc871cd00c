#include "server/source/combine/relabel.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "clientlib/base/nearest.h"
#include "server/source/combine/forwarding.h"
#include "server/source/combine/refs.h"
#include "server/source/fingerprint.h"
#include "server/source/labels.h"
#include "server/source/problems.h"

namespace headrace::server::source {
namespace {

class Relabelled final : public ForwardingSource {
 public:
  /// `labels`: maps the source's labels to the new ones.
  Relabelled(std::shared_ptr<const Source> of, std::vector<std::int64_t> labels,
             std::vector<std::string> classes)
      : ForwardingSource(std::move(of)), labels_(std::move(labels)), classes_(std::move(classes)) {
    Fingerprint fingerprint;
    fingerprint.add("relabel").add(real().fingerprint());
    for (const std::int64_t label : labels_) fingerprint.add(static_cast<std::uint64_t>(label));
    for (const std::string& name : classes_) fingerprint.add(name);
    fingerprint_ = fingerprint.value();
  }

  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override {
    return real().read_fields(index, wanted, out);
  }
  bool view_samples(SampleView& view) const override { return real().view_samples(view); }
  [[nodiscard]] const Source& whole() const override { return real().whole(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    return labels_.at(static_cast<std::size_t>(real().label(index)));
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::string warning() const override {
    return {};
  }  // already reported for the underlying source

 private:
  const std::vector<std::int64_t> labels_;
  const std::vector<std::string> classes_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Source>> relabel(const std::shared_ptr<const Source>& of,
                                              const RelabelOptions& options) {
  if (!of->labelled())
    return fail(ErrorCode::kConfigInvalid, "relabel: the source's samples have no classes");
  if (auto sound = check_labels(*of); !sound) return fail(sound.error());
  const auto& own = of->class_names();
  Problems problems;
  for (const auto& [from, to] : options.remap)
    if (std::find(own.begin(), own.end(), from) == own.end())
      problems.add(fmt::format("relabel: remap names {}", unknown_class(from, own)));
  std::vector<std::string> classes;
  std::unordered_map<std::string, std::int64_t> places;
  const auto place = [&](const std::string& name) {
    const auto [found, fresh] = places.emplace(name, std::ssize(classes));
    if (fresh) classes.push_back(name);
    return std::pair(found->second, fresh);
  };
  for (const std::string& name : options.classes)
    if (!place(name).second) problems.add(fmt::format("relabel: `classes` has \"{}\" twice", name));
  std::vector<std::int64_t> labels;
  for (const std::string& name : own) {
    const auto mapped = options.remap.find(name);
    const std::string& now = mapped == options.remap.end() ? name : mapped->second;
    if (!options.classes.empty() && !places.contains(now)) {
      problems.add(
          fmt::format("relabel: class \"{}\"{} is none of `classes`: list it, remap it, or leave its "
                      "samples out by a subset{}",
                      name, now == name ? "" : fmt::format(", remapped to \"{}\",", now),
                      did_you_mean(now, options.classes, '"')));
      continue;
    }
    labels.push_back(place(now).first);
  }
  if (!problems.none()) return fail(problems.error(ErrorCode::kConfigInvalid));
  return std::make_shared<Relabelled>(of, std::move(labels), std::move(classes));
}

described::Description<RelabelOptions> RelabelOptions::description() {
  using Self = RelabelOptions;
  const described::Schema number{{"type", "integer"}, {"minimum", 0}};
  const described::Codec<std::string> either{
      {{"anyOf", {described::text().schema, number}}, {"x-expected", "the name of a class"}},
      [](const described::Json& value, const described::Reading&) {
        return value.is_string() ? value.get<std::string>() : value.dump();
      },
      [](const std::string& name) { return described::Json(name); }};
  auto classes = described::without_default(described::key(
      "classes", &Self::classes, described::list(described::class_name(), 1),
      "Names of labels 0, 1, ...; each class must be one of them. Default: the source's order."));
  return {"relabel",
          "A source with its classes renamed, merged or reordered.",
          {described::required("of", &Self::of, only_ref()),
           described::without_default(described::key(
               "remap", &Self::remap, described::map(either, 1),
               "Old class name -> new class name. Classes without names are called 0, 1, ...")),
           std::move(classes)},
          [](const Self&, const described::Json& map, const described::Reading& reading) {
            if (!map.contains("remap") && !map.contains("classes"))
              reading.wrong_key("", "needs remap or classes");
          }};
}

namespace types {
SourceType relabel() {
  return source_type<RelabelOptions>({.in_memory = kMembersKeep, .keeps_in_members = true},
                                     [](const RelabelOptions& options, const OpenContext& context) {
                                       return source::relabel(context.members.front().source, options);
                                     });
}
}  // namespace types

}  // namespace headrace::server::source
