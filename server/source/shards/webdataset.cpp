#include "server/source/shards/webdataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "server/described/names.h"
#include "server/remote/url.h"
#include "server/source/files/at_once.h"
#include "server/source/fingerprint.h"
#include "server/source/labels.h"
#include "server/source/shards/index_cache.h"
#include "server/source/shards/shard_set.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

Result<std::vector<ShardIndex>> walk_shards(const ShardSet& set, const ShardRule& rule) {
  const std::size_t count = set.shards().size();
  std::vector<ShardIndex> out(count);
  std::vector<Problems> problems(count);
  std::vector<std::optional<Error>> errors(count);
  for_each_at_once(
      count,
      [&](std::size_t i) {
        try {
          if (auto index = set.index(i, rule, problems[i])) {
            out[i] = std::move(*index);
          } else {
            errors[i] = std::move(index.error());
          }
        } catch (const std::bad_alloc&) {
          errors[i] = Error{ErrorCode::kNotEnoughMemory,
                            fmt::format("{}: no memory for its index", set.shards()[i].name)};
        }
      },
      set.at_once());
  Problems all;
  ErrorCode code = ErrorCode::kDatasetInvalid;
  for (std::size_t i = 0; i < count; ++i) {
    if (errors[i]) {
      if (code == ErrorCode::kDatasetInvalid) code = errors[i]->code;
      problems[i].add(std::move(errors[i]->message));
    }
    all.merge(std::move(problems[i]));
  }
  if (!all.none()) return fail(all.error(code));
  return out;
}

class WebDataset final : public Source {
 public:
  WebDataset(std::unique_ptr<const ShardSet> set, std::vector<ShardIndex> indices,
             const WebDatasetOptions& options)
      : set_(std::move(set)),
        indices_(std::move(indices)),
        rule_(options.rule),
        max_bytes_(options.read.max_bytes) {
    std::uint64_t before = 0;
    std::int64_t labels = 0;
    for (const ShardIndex& index : indices_) {
      ends_.push_back(before += index.samples.size());
      for (const ShardSample& sample : index.samples)
        labels = std::max(labels, std::int64_t{sample.label} + 1);
    }
    if (rule_.labelled()) classes_ = rule_.classes.empty() ? numbered_classes(labels) : rule_.classes;
  }

  [[nodiscard]] std::uint64_t size() const override { return ends_.back(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override;
  [[nodiscard]] bool labelled() const override { return rule_.labelled(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    const auto [shard, at] = find(index);
    return indices_[shard].samples[at].label;
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    const auto [shard, at] = find(index);
    const ShardIndex& in = indices_[shard];
    return fmt::format("{}/{}.{}", set_->shards()[shard].name, in.key(at),
                       rule_.images[in.samples[at].extension]);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  [[nodiscard]] std::uint64_t fingerprint() const override;
  [[nodiscard]] std::string warning() const override;

 private:
  /// The shard, and the sample's index in it.
  [[nodiscard]] std::pair<std::size_t, std::size_t> find(std::uint64_t index) const {
    const auto shard =
        static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    const std::uint64_t begin = shard == 0 ? 0 : ends_[shard - 1];
    return {shard, static_cast<std::size_t>(index - begin)};
  }

  const std::unique_ptr<const ShardSet> set_;
  const std::vector<ShardIndex> indices_;
  const ShardRule rule_;
  const std::uint64_t max_bytes_;
  const std::vector<SourceField> fields_{SourceField{}};
  std::vector<std::string> classes_;
  std::vector<std::uint64_t> ends_;
};

Result<void> WebDataset::read(std::uint64_t index, Sample& out) const {
  const auto [shard, at] = find(index);
  const ShardSample& sample = indices_[shard].samples[at];
  if (sample.bytes == ShardSample::kHuge || sample.bytes > max_bytes_)
    return fail(ErrorCode::kBadSample, fmt::format("{}: has {} bytes or more, the limit is {}", name(index),
                                                   sample.bytes, max_bytes_));
  Item& image = out.item(0);
  image.own(sample.bytes);
  image.pixels = {};
  return set_->read(shard, sample.offset, image.storage);
}

std::uint64_t WebDataset::fingerprint() const {
  Fingerprint fingerprint;
  fingerprint.add(std::uint64_t{rule_.labelled()});
  for (std::size_t i = 0; i < indices_.size(); ++i)
    fingerprint.add(std::string_view(set_->shards()[i].name)).add(indices_[i].fingerprint);
  return fingerprint.value();
}

std::string WebDataset::warning() const {
  ShardIndex sum;
  for (const ShardIndex& index : indices_)
    for (const auto& [extension, count] : index.left_out) sum.leave_out(extension, count);
  if (sum.left_out.empty()) return {};
  std::vector<std::string> parts;
  for (const auto& [extension, count] : sum.left_out) parts.push_back(fmt::format("{} {}", count, extension));
  return fmt::format("{}: members that are not served, by extension: {}", set_->root(),
                     fmt::join(parts, ", "));
}

}  // namespace

Result<std::shared_ptr<const Source>> open_webdataset(const WebDatasetOptions& options) {
  const bool away =
      options.remote != nullptr && std::any_of(options.paths.begin(), options.paths.end(), &remote::is_url);
  auto set = away ? find_remote_shards(options.paths, options.remote)
                  : find_local_shards(options.paths, options.read);
  if (!set) return fail(std::move(set.error()));
  std::optional<IndexCache> cache;
  if (options.cache && (*set)->stamped()) cache.emplace((*set)->root(), (*set)->shards(), options.rule);
  auto indices = cache ? cache->load() : std::nullopt;
  if (!indices) {
    auto walked = walk_shards(**set, options.rule);
    if (!walked) return fail(std::move(walked.error()));
    indices = std::move(*walked);
    if (cache) cache->store(*indices);
  }
  if (std::all_of(indices->begin(), indices->end(),
                  [](const ShardIndex& index) { return index.samples.empty(); }))
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: no sample in {} shards; their members are named KEY.{}", (*set)->root(),
                            (*set)->shards().size(), options.rule.images.front()));
  return std::make_shared<WebDataset>(std::move(*set), std::move(*indices), options);
}

described::Description<WebDatasetOptions> WebDatasetOptions::description() {
  using Self = WebDatasetOptions;
  using described::Json;
  using Paths = std::vector<std::string>;
  const auto one = described::converted<std::string, std::filesystem::path>(
      described::data_path(), [](const std::filesystem::path& path) { return path.string(); },
      [](const std::string& path) { return std::filesystem::path(path); });
  const auto single = described::converted<Paths, std::string>(
      one, [](const std::string& path) { return Paths{path}; },
      [](const Paths& paths) { return paths.front(); });
  const auto paths =
      described::any_of<Paths>({{single, [](const Json& value) { return value.is_string(); }},
                                {described::expecting("a list of paths", described::list(one, 1)),
                                 [](const Json& value) { return value.is_array(); }}});
  auto extension = described::named(
      "extension", described::text("^[^./][^/]*$", "a file name's extension without the leading dot"));
  extension.read = [read = extension.read](const Json& value, const described::Reading& reading) {
    std::string text = read(value, reading);
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return text;
  };
  const auto rule = [](auto key) { return described::within(&Self::rule, std::move(key)); };
  return {
      "webdataset",
      "WebDataset shards: uncompressed tar files in which the members of a sample follow one another.",
      {described::required(
           "path", &Self::paths, paths,
           "A tar file, a folder of them, a pattern such as shards/train-{000000..000146}.tar, or "
           "a list of these; all of them may be http://, https:// or s3:// URLs."),
       rule(described::without_default(described::key(
           "image", &ShardRule::images, described::list(extension, 1),
           "Extensions of the image member, in order of preference. Default: [jpg, jpeg, png]."))),
       described::within(
           &Self::rule,
           described::key("label", &ShardRule::label,
                          described::text("^[^/]+$", "an extension (cls), json.KEY or none"),
                          "Where the class is: the extension of a member that contains an integer as text, "
                          "json.KEY for a key of the .json member, or none.")),
       rule(described::without_default(
           described::key("classes", &ShardRule::classes, described::class_names()))),
       described::key("index_cache", &Self::cache, described::word<bool>({{"on", true}, {"off", false}}),
                      "Keep the index in a file beside the shards, or in $XDG_CACHE_HOME/headrace (there "
                      "always for URLs).")}};
}

namespace types {
SourceType webdataset() {
  return source_type<WebDatasetOptions>(
      {.network = true, .by_sample = [](const described::Json&) { return true; }},
      [](const WebDatasetOptions& options, const OpenContext& context) {
        WebDatasetOptions all = options;
        all.remote = context.remote;
        return open_webdataset(all);
      });
}
}  // namespace types

}  // namespace headrace::server::source
