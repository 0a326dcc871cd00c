#include "server/source/combine/concat.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "server/source/combine/refs.h"
#include "server/source/fingerprint.h"
#include "server/source/labels.h"

namespace headrace::server::source {
namespace {

struct Piece {
  Member member;
  std::uint64_t begin = 0;           ///< index of its first sample
  std::uint64_t distinct_begin = 0;  ///< the same among the samples that caches keep
  std::vector<std::int64_t> labels;  ///< maps its own labels to the common ones; empty: they are equal
  std::vector<std::pair<std::size_t, std::size_t>> swaps;  ///< of items, in this order; empty: none

  /// Fields of the concatenation, as the member's own.
  [[nodiscard]] FieldSet own(FieldSet fields) const {
    for (auto swap = swaps.rbegin(); swap != swaps.rend(); ++swap)
      fields = fields.swapped(swap->first, swap->second);
    return fields;
  }
};

class Concat final : public Source {
 public:
  Concat(std::vector<Piece> pieces, std::vector<SourceField> fields, std::vector<std::string> classes,
         std::uint64_t size)
      : pieces_(std::move(pieces)), fields_(std::move(fields)), classes_(std::move(classes)), size_(size) {
    Fingerprint fingerprint;
    fingerprint.add("concat");
    for (const Piece& piece : pieces_) fingerprint.add(piece.member.source->fingerprint());
    for (const std::string& name : classes_) fingerprint.add(name);
    for (const Piece& piece : pieces_)
      for (const std::int64_t label : piece.labels) fingerprint.add(static_cast<std::uint64_t>(label));
    fingerprint_ = fingerprint.value();
  }

  [[nodiscard]] std::uint64_t size() const override { return size_; }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override {
    const Piece& piece = at(index);
    wanted = piece.own(wanted);
    if (auto read = piece.member.source->read_fields(index - piece.begin, wanted, out); !read) return read;
    for (const auto& [one, other] : piece.swaps) std::swap(out.items[one], out.items[other]);
    return {};
  }
  void will_read(FieldSet wanted) const override {
    for (const Piece& piece : pieces_) piece.member.source->will_read(piece.own(wanted));
  }
  [[nodiscard]] std::vector<std::uint64_t> distinct_sizes() const override {
    std::vector<std::uint64_t> all;
    for (const Piece& piece : pieces_) {
      const auto sizes = piece.member.source->distinct_sizes();
      all.insert(all.end(), sizes.begin(), sizes.end());
    }
    return all;
  }
  [[nodiscard]] std::uint64_t index_in_distinct(std::uint64_t index) const override {
    const Piece& piece = at(index);
    return piece.distinct_begin + piece.member.source->index_in_distinct(index - piece.begin);
  }
  [[nodiscard]] bool labelled() const override { return pieces_.front().member.source->labelled(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    const Piece& piece = at(index);
    const std::int64_t own = piece.member.source->label(index - piece.begin);
    return piece.labels.empty() ? own : piece.labels.at(static_cast<std::size_t>(own));
  }
  /// A bound: all rows may come from the member with the longest samples.
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    std::uint64_t sum = 0, longest = 0;
    for (const Piece& piece : pieces_) {
      const auto& own = piece.member.source->fields();
      const auto found = std::find_if(
          own.begin(), own.end(), [&](const SourceField& one) { return one.name == fields_[field].name; });
      const auto place = static_cast<std::size_t>(found - own.begin());
      sum += piece.member.source->most_values(place, rows);
      longest = std::max(longest, piece.member.source->most_values(place, 1));
    }
    return std::min(sum, rows * longest);
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    const Piece& piece = at(index);
    return piece.member.name + "/" + piece.member.source->name(index - piece.begin);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::optional<Error> fault() const override {
    for (const Piece& piece : pieces_)
      if (auto lost = piece.member.source->fault()) return lost;
    return std::nullopt;
  }

 private:
  [[nodiscard]] const Piece& at(std::uint64_t index) const {
    const auto next =
        std::upper_bound(pieces_.begin(), pieces_.end(), index,
                         [](std::uint64_t wanted, const Piece& piece) { return wanted < piece.begin; });
    return *std::prev(next);
  }

  const std::vector<Piece> pieces_;
  const std::vector<SourceField> fields_;
  const std::vector<std::string> classes_;
  const std::uint64_t size_;
  std::uint64_t fingerprint_ = 0;
};

std::string describe(const SourceField& field) {
  switch (field.content) {
    case Content::kEncodedImage:
    case Content::kPixels:
      return fmt::format("{} of {}, {} channels, scale {}", field.mask ? "masks" : "images",
                         field.content == Content::kPixels ? "pixels" : "files", field.channels, field.scale);
    case Content::kValues:
      return fmt::format("{} [{}]", name_of(field.dtype), fmt::join(field.shape, ", "));
    case Content::kRagged:
      return fmt::format("any number of {} [{}]", name_of(field.dtype), fmt::join(field.shape, ", "));
  }
  return "?";
}

Error disagree(const std::string& what) {
  return {ErrorCode::kConfigInvalid, "concat: " + what};
}

/// Reorders the items of `piece` to match `fields`, and drops image sizes that are not common.
Result<void> fit_fields(const Piece& first, Piece& piece, std::vector<SourceField>& fields) {
  const auto& own = piece.member.source->fields();
  std::vector<std::size_t> place(own.size());  // index of item i in `fields`
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [&](const SourceField& one) { return one.name == own[i].name; });
    if (found == fields.end())
      return fail(disagree(fmt::format("`{}` has a field `{}`, and `{}` has none", piece.member.name,
                                       own[i].name, first.member.name)));
    if (describe(*found) != describe(own[i]))
      return fail(
          disagree(fmt::format("field `{}` is {} in `{}` and {} in `{}`", own[i].name, describe(*found),
                               first.member.name, describe(own[i]), piece.member.name)));
    if (found->height != own[i].height || found->width != own[i].width) found->height = found->width = 0;
    place[i] = static_cast<std::size_t>(found - fields.begin());
  }
  for (const SourceField& field : fields)
    if (std::none_of(own.begin(), own.end(), [&](const SourceField& one) { return one.name == field.name; }))
      return fail(disagree(fmt::format("`{}` has a field `{}`, and `{}` has none", first.member.name,
                                       field.name, piece.member.name)));
  for (std::size_t i = 0; i < place.size(); ++i) {
    while (place[i] != i) {
      const std::size_t target = place[i];
      piece.swaps.emplace_back(i, target);
      std::swap(place[i], place[target]);
    }
  }
  return {};
}

Result<std::vector<std::string>> common_classes(std::vector<Piece>& pieces) {
  const Member& first = pieces.front().member;
  std::vector<std::string> classes;
  std::unordered_map<std::string, std::int64_t> labels;
  const bool numbers = are_numbers(first.source->class_names());
  for (Piece& piece : pieces) {
    const Source& source = *piece.member.source;
    if (source.labelled() != first.source->labelled())
      return fail(disagree(fmt::format("`{}` has classes, and `{}` has none",
                                       source.labelled() ? piece.member.name : first.name,
                                       source.labelled() ? first.name : piece.member.name)));
    if (!source.labelled()) continue;
    const auto& own = source.class_names();
    if (are_numbers(own) != numbers)
      return fail(disagree(
          fmt::format("`{}` names its classes, and `{}` numbers them: name those, too, by "
                      "`classes`, or by a source of type relabel",
                      numbers ? piece.member.name : first.name, numbers ? first.name : piece.member.name)));
    if (auto sound = check_labels(source); !sound)
      return fail(sound.error().code,
                  fmt::format("concat: `{}`: {}", piece.member.name, sound.error().message));
    for (const std::string& name : own) {
      const auto [place, fresh] = labels.emplace(name, std::ssize(classes));
      if (fresh) classes.push_back(name);
      piece.labels.push_back(place->second);
    }
    std::vector<std::int64_t> same(own.size());
    std::iota(same.begin(), same.end(), std::int64_t{0});
    if (piece.labels == same) piece.labels.clear();
  }
  return classes;
}

}  // namespace

Result<std::shared_ptr<const Source>> concat(const std::vector<Member>& members) {
  std::vector<Piece> pieces;
  std::vector<SourceField> fields = members.front().source->fields();
  std::uint64_t size = 0, distinct = 0;
  for (const Member& member : members) {
    pieces.push_back({member, size, distinct, {}, {}});
    if (auto fits = fit_fields(pieces.front(), pieces.back(), fields); !fits) return fail(fits.error());
    size += member.source->size();
    const auto sizes = member.source->distinct_sizes();
    distinct = std::accumulate(sizes.begin(), sizes.end(), distinct);
    if (size > kMostComposed)
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("concat: {} samples with `{}`; at most {} are possible", size, member.name,
                              kMostComposed));
  }
  auto classes = common_classes(pieces);
  if (!classes) return fail(classes.error());
  return std::make_shared<Concat>(std::move(pieces), std::move(fields), std::move(*classes), size);
}

namespace {

struct ConcatOptions {
  std::vector<SourceRef> of;

  static described::Description<ConcatOptions> description() {
    return {"concat",
            "The samples of several sources, one source after the other. Their fields must agree; classes "
            "are matched by name.",
            {described::required("of", &ConcatOptions::of, source_refs())}};
  }
};

}  // namespace

namespace types {
SourceType concat() {
  return source_type<ConcatOptions>(
      {.in_memory = kMembersKeep, .keeps_in_members = true},
      [](const ConcatOptions&, const OpenContext& context) { return source::concat(context.members); });
}
}  // namespace types

}  // namespace headrace::server::source
