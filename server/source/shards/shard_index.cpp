#include "server/source/shards/shard_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/source/files/json_text.h"
#include "server/source/fingerprint.h"
#include "server/source/labels.h"

namespace headrace::server::source {
namespace {

constexpr std::uint64_t kLongestLabel = 64;
constexpr std::uint64_t kLongestJson = std::uint64_t{1} << 20;
constexpr std::size_t kMostExtensions = 64;
constexpr std::string_view kJsonLabel = "json.";

/// The sample whose members are being read.
struct Gathered {
  std::string key;
  bool image = false, label = false;
  ShardSample sample;
  std::string others;  // extensions that are not served, for the message
};

class Indexer {
 public:
  Indexer(const std::string& shown, const ShardRule& rule, Problems& problems)
      : shown_(shown),
        rule_(rule),
        problems_(problems),
        label_extension_(rule.label.starts_with(kJsonLabel) ? "json" : rule.label) {}

  Result<void> add(const TarMember& member, TarReader& tar);
  Result<ShardIndex> finish();

 private:
  void problem(const std::string& what) {
    problems_.add(fmt::format("{}: sample \"{}\" {}", shown_, now_.key, what));
  }
  Result<void> end_sample();
  Result<void> read_label(const TarMember& member, TarReader& tar);
  [[nodiscard]] std::optional<std::int64_t> number_in(const std::string& content);
  void see_keys_are_unique();

  const std::string& shown_;
  const ShardRule& rule_;
  Problems& problems_;
  const std::string label_extension_;
  Gathered now_;
  ShardIndex index_;
};

Result<void> Indexer::add(const TarMember& member, TarReader& tar) {
  const auto name = parse_member_name(member.name);
  if (!member.file || !name) {
    // Folders need not be counted; a link could be an image.
    if (member.file || !member.name.ends_with('/'))
      index_.leave_out(member.file ? "without extension" : "links and others", 1);
    return {};
  }
  if (name->key != now_.key) {
    if (auto ended = end_sample(); !ended) return ended;
    now_ = {};
    now_.key = name->key;
  }
  const auto image = std::find(rule_.images.begin(), rule_.images.end(), name->extension);
  if (image != rule_.images.end()) {
    const auto rank = static_cast<std::uint32_t>(image - rule_.images.begin());
    if (now_.image && rank == now_.sample.extension) problem(fmt::format("has two members .{}", *image));
    if (now_.image) index_.leave_out(rule_.images[std::max(rank, now_.sample.extension)], 1);
    if (now_.image && rank >= now_.sample.extension) return {};
    now_.image = true;
    now_.sample.extension = rank;
    now_.sample.offset = member.offset;
    now_.sample.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(member.bytes, ShardSample::kHuge));
    return {};
  }
  if (rule_.labelled() && name->extension == label_extension_) return read_label(member, tar);
  index_.leave_out(name->extension, 1);
  if (now_.others.size() < 100) now_.others += (now_.others.empty() ? "." : ", .") + name->extension;
  return {};
}

std::optional<std::int64_t> Indexer::number_in(const std::string& content) {
  if (rule_.label.starts_with(kJsonLabel)) {
    const std::string key = rule_.label.substr(kJsonLabel.size());
    const auto parsed = parse_json(content);
    if (!parsed.is_object() || !parsed.contains(key)) {
      problem(parsed.is_object() ? fmt::format("has no \"{}\" in its .json", key)
                                 : "has a .json that is not a JSON object");
      return std::nullopt;
    }
    const auto& value = parsed[key];
    const bool fits =
        value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT64_MAX : value.is_number_integer();
    if (fits) return value.get<std::int64_t>();
    problem(fmt::format("has a \"{}\" in its .json that is not an integer: {:.40}", key,
                        value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
    return std::nullopt;
  }
  constexpr std::string_view kBlank = " \t\r\n";
  const auto begin = content.find_first_not_of(kBlank);
  const auto last = content.find_last_not_of(kBlank);
  std::int64_t number = 0;
  if (begin != std::string::npos) {
    const char* end = content.data() + last + 1;
    const auto [stop, error] = std::from_chars(content.data() + begin, end, number);
    if (error == std::errc() && stop == end) return number;
  }
  problem(fmt::format("has a .{} that is not an integer: {}", label_extension_,
                      nlohmann::json(content).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  return std::nullopt;
}

Result<void> Indexer::read_label(const TarMember& member, TarReader& tar) {
  if (now_.label) problem(fmt::format("has two members .{}", label_extension_));
  now_.label = true;
  const std::uint64_t most = label_extension_ == rule_.label ? kLongestLabel : kLongestJson;
  if (member.bytes > most) {
    problem(fmt::format("has a .{} of {} bytes; up to {} are read", label_extension_, member.bytes, most));
    return {};
  }
  auto content = tar.content();
  if (!content) return fail(std::move(content.error()));
  const auto number = number_in(*content);
  if (!number) return {};
  if (*number < 0 || *number >= label_limit(rule_.classes)) {
    problems_.add(label_out_of_range(fmt::format("{}: the label of sample \"{}\"", shown_, now_.key), *number,
                                     rule_.classes));
    return {};
  }
  now_.sample.label = static_cast<std::uint32_t>(*number);
  return {};
}

Result<void> Indexer::end_sample() {
  if (now_.key.empty()) return {};
  if (!now_.image)
    problem(fmt::format(
        "has no image (.{}){}", fmt::join(rule_.images, ", ."),
        now_.others.empty()
            ? ""
            : fmt::format("; it has {}; name the extension of its JPEG or PNG in `image`", now_.others)));
  if (rule_.labelled() && !now_.label)
    problem(
        fmt::format("has no label (.{}){}; a set without labels has `label: none`", label_extension_,
                    now_.others.empty()
                        ? ""
                        : fmt::format("; it has {}; name the label's extension in `label`", now_.others)));
  index_.names += now_.key;
  if (index_.names.size() > 0xFFFFFFFF)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: has more than 4 GiB of names; divide it into more shards", shown_));
  now_.sample.name_end = static_cast<std::uint32_t>(index_.names.size());
  index_.samples.push_back(now_.sample);
  return {};
}

void Indexer::see_keys_are_unique() {
  std::vector<std::pair<std::uint64_t, std::size_t>> hashes;
  hashes.reserve(index_.samples.size());
  for (std::size_t i = 0; i < index_.samples.size(); ++i) {
    const std::string_view key = index_.key(i);
    hashes.emplace_back(XXH3_64bits(key.data(), key.size()), i);
  }
  std::sort(hashes.begin(), hashes.end());
  std::vector<std::size_t> again;
  for (std::size_t i = 1; i < hashes.size(); ++i)
    if (hashes[i].first == hashes[i - 1].first &&
        index_.key(hashes[i].second) == index_.key(hashes[i - 1].second))
      again.push_back(hashes[i].second);
  std::sort(again.begin(), again.end());
  for (const std::size_t i : again)
    problems_.add(fmt::format("{}: sample \"{}\" occurs twice; the members of a sample must be consecutive",
                              shown_, index_.key(i)));
}

Result<ShardIndex> Indexer::finish() {
  if (auto ended = end_sample(); !ended) return fail(std::move(ended.error()));
  see_keys_are_unique();
  index_.samples.shrink_to_fit();
  index_.names.shrink_to_fit();
  index_.fingerprint = fingerprint_of(index_, rule_.images);
  return std::move(index_);
}

}  // namespace

std::optional<MemberName> parse_member_name(std::string_view name) {
  const auto slash = name.rfind('/');
  const auto begin = slash == std::string_view::npos ? 0 : slash + 1;
  const auto dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin) return std::nullopt;
  MemberName out{name.substr(0, dot), std::string(name.substr(dot + 1))};
  for (char& c : out.extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view ShardIndex::key(std::size_t sample) const {
  const std::size_t begin = sample == 0 ? 0 : samples[sample - 1].name_end;
  return std::string_view(names).substr(begin, samples[sample].name_end - begin);
}

std::uint64_t fingerprint_of(const ShardIndex& index, const std::vector<std::string>& images) {
  Fingerprint fingerprint;
  for (std::size_t i = 0; i < index.samples.size(); ++i) {
    const ShardSample& sample = index.samples[i];
    fingerprint.add(index.key(i)).add(std::string_view(images[sample.extension]));
    fingerprint.add(std::uint64_t{sample.bytes} << 32 | sample.label);
  }
  return fingerprint.value();
}

void ShardIndex::leave_out(const std::string& extension, std::uint64_t count) {
  const bool room = left_out.size() < kMostExtensions || left_out.contains(extension);
  left_out[room ? extension : "others"] += count;
}

Result<ShardIndex> index_shard(TarReader tar, const std::string& shown, const ShardRule& rule,
                               Problems& problems) {
  Indexer indexer(shown, rule, problems);
  TarMember member;
  for (;;) {
    const auto more = tar.next(member);
    if (!more) return fail(more.error());
    if (!*more) return indexer.finish();
    if (auto added = indexer.add(member, tar); !added) return fail(std::move(added.error()));
  }
}

}  // namespace headrace::server::source
