#include "server/source/combine/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "clientlib/base/nearest.h"
#include "server/source/combine/refs.h"
#include "server/source/fingerprint.h"

namespace headrace::server::source {
namespace {

using SourcePtr = std::shared_ptr<const Source>;

class Zip final : public Source {
 public:
  /// `classes`: the member that has the samples' classes; none: samples have no classes.
  Zip(std::vector<SourcePtr> members, std::vector<SourceField> fields, SourcePtr classes)
      : members_(std::move(members)), fields_(std::move(fields)), classes_(std::move(classes)) {
    Fingerprint fingerprint;
    fingerprint.add("zip");
    for (const SourcePtr& member : members_)
      fingerprint.add(member->fingerprint()).add(std::uint64_t{member == classes_});
    for (const SourceField& field : fields_) fingerprint.add(field.name);
    fingerprint_ = fingerprint.value();
  }

  [[nodiscard]] std::uint64_t size() const override { return members_.front()->size(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override;
  void will_read(FieldSet wanted) const override {
    for (const SourcePtr& member : members_) {
      const std::size_t own = member->fields().size();
      if (wanted.has_any(own)) member->will_read(wanted);
      wanted = wanted.after(own);
    }
  }
  [[nodiscard]] bool labelled() const override { return classes_ != nullptr; }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    return classes_ ? classes_->label(index) : 0;
  }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    for (const SourcePtr& member : members_) {
      if (field < member->fields().size()) return member->most_values(field, rows);
      field -= member->fields().size();
    }
    return rows;
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override { return members_.front()->name(index); }
  [[nodiscard]] const std::vector<std::string>& class_names() const override {
    return classes_ ? classes_->class_names() : none_;
  }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::optional<Error> fault() const override {
    for (const SourcePtr& member : members_)
      if (auto lost = member->fault()) return lost;
    return std::nullopt;
  }

 private:
  const std::vector<SourcePtr> members_;
  const std::vector<SourceField> fields_;
  const SourcePtr classes_;
  const std::vector<std::string> none_;
  std::uint64_t fingerprint_ = 0;
};

/// Every member writes its items at the front, then they are rotated to the back; after the last member, all
/// items are in order.
Result<void> Zip::read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const {
  out.item(fields_.size() - 1);
  for (const SourcePtr& member : members_) {
    const std::size_t own = member->fields().size();
    if (wanted.has_any(own))
      if (auto read = member->read_fields(index, wanted, out); !read) return read;
    const auto begin = out.items.begin();
    std::rotate(begin, begin + static_cast<std::ptrdiff_t>(own),
                begin + static_cast<std::ptrdiff_t>(fields_.size()));
    wanted = wanted.after(own);
  }
  return {};
}

Error refused(const std::string& what) {
  return {ErrorCode::kConfigInvalid, "zip: " + what};
}

std::string instead(const std::string& name, const std::vector<std::string>& names) {
  return fmt::format("{}{}", fmt::join(names, ", "), did_you_mean(name, names, '"'));
}

std::vector<std::string> names_of(const std::vector<SourceField>& fields) {
  std::vector<std::string> names;
  names.reserve(fields.size());
  for (const SourceField& field : fields) names.push_back(field.name);
  return names;
}

/// The fields of `member` under their new names.
Result<std::vector<SourceField>> renamed(const Member& member, const ZipOptions& options) {
  std::vector<SourceField> fields = member.source->fields();
  const auto rename = options.rename.find(member.name);
  if (rename == options.rename.end()) return fields;
  const auto names = names_of(fields);
  for (const auto& [from, to] : rename->second) {
    const auto found = std::find(names.begin(), names.end(), from);
    if (found == names.end())
      return fail(refused(fmt::format("rename: `{}` has no field `{}`; fields: {}", member.name, from,
                                      instead(from, names))));
    fields[static_cast<std::size_t>(found - names.begin())].name = to;
  }
  return fields;
}

/// The member that has the samples' classes: none if no member has any.
Result<SourcePtr> find_classes(const std::vector<Member>& members, const ZipOptions& options) {
  std::vector<std::string> names;
  SourcePtr classes;
  for (const Member& member : members) {
    if (!member.source->labelled()) continue;
    names.push_back(member.name);
    if (options.label.empty() || options.label == member.name) classes = member.source;
  }
  if (!options.label.empty() && !classes)
    return fail(refused(fmt::format("label: `{}` is not a member with classes; members with classes: {}",
                                    options.label, names.empty() ? "none" : instead(options.label, names))));
  if (options.label.empty() && names.size() > 1)
    return fail(refused(fmt::format("{} have classes: name in `label` the member whose classes to use",
                                    fmt::join(names, " and "))));
  return classes;
}

}  // namespace

Result<std::shared_ptr<const Source>> zip(const std::vector<Member>& members, const ZipOptions& options) {
  const Member& first = members.front();
  std::vector<SourcePtr> sources;
  std::vector<SourceField> fields;
  std::map<std::string, std::string> owner;
  for (const Member& member : members) {
    if (member.source->size() != first.source->size())
      return fail(
          refused(fmt::format("`{}` has {} samples and `{}` {}: sample i of one belongs to sample i of the "
                              "other, so their sizes must be equal",
                              first.name, first.source->size(), member.name, member.source->size())));
    auto own = renamed(member, options);
    if (!own) return fail(own.error());
    for (SourceField& field : *own) {
      const auto [before, fresh] = owner.emplace(field.name, member.name);
      if (!fresh)
        return fail(refused(
            fmt::format("`{}` and `{}` both have a field `{}`: call one of them otherwise, "
                        "as by rename: {{{}: {{{}: {}_2}}}}",
                        before->second, member.name, field.name, member.name, field.name, field.name)));
      fields.push_back(std::move(field));
    }
    sources.push_back(member.source);
  }
  auto classes = find_classes(members, options);
  if (!classes) return fail(classes.error());
  return std::make_shared<Zip>(std::move(sources), std::move(fields), std::move(*classes));
}

namespace {

/// Checks that `label` and `rename` name members.
void check_members(const ZipOptions& options, const described::Json&, const described::Reading& reading) {
  std::vector<std::string> members;
  for (const SourceRef& ref : options.of) members.push_back(ref.text());
  const auto wrong = [&](const std::string& name) {
    return std::find(members.begin(), members.end(), name) == members.end()
               ? fmt::format("\"{}\" is none of its members: {}", name, fmt::join(members, ", "))
               : std::string();
  };
  if (!options.label.empty())
    if (auto why = wrong(options.label); !why.empty())
      reading.wrong("label", std::move(why), nearest(options.label, members));
  for (const auto& [member, ignored] : options.rename)
    if (auto why = wrong(member); !why.empty())
      reading.wrong_key(described::Pointer("/rename") / member, std::move(why), nearest(member, members));
}

}  // namespace

described::Description<ZipOptions> ZipOptions::description() {
  using Self = ZipOptions;
  auto label = described::without_default(
      described::key("label", &Self::label, described::plain<std::string>(source_ref().schema),
                     "The member whose class is the sample's. Default: the one that has classes."));
  return {"zip",
          "Sources of one size side by side: sample i has the fields of sample i of each.",
          {described::required("of", &Self::of, source_refs()),
           described::without_default(described::key(
               "rename", &Self::rename, described::map(described::map(described::field(), 1), 1),
               "Member -> field -> new name. Needed if two members have a field of the same name.")),
           std::move(label)},
          check_members};
}

namespace types {
SourceType zip() {
  return source_type<ZipOptions>({.in_memory = kMembersKeep},
                                 [](const ZipOptions& options, const OpenContext& context) {
                                   return source::zip(context.members, options);
                                 });
}
}  // namespace types

}  // namespace headrace::server::source
