#include "server/status/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/status/picture.h"

namespace headrace::server::status {
namespace {

using nlohmann::json;

/// Requests for which a sample is made, or that wait for that. Each occupies a thread of the HTTP port.
constexpr int kMostWaiting = 8;
/// Bytes of an original: a file, or bare pixels.
constexpr std::size_t kLargest = std::size_t{64} << 20;

bool is_image(const exec::FieldPlan& plan) {
  return plan.plan.has_value();
}

Result<ImageFile> as_png(const Picture& picture) {
  auto file = to_png(picture);
  if (!file) return tl::make_unexpected(file.error());
  return ImageFile{"image/png", std::move(*file)};
}

}  // namespace

struct Samples::Shown {
  const exec::Stream& stream;
  std::unique_ptr<exec::LooseRow> made;
  exec::Row row;
  exec::SampleMaker::Explanation explanation;
  std::size_t field = 0;  ///< in plans()

  [[nodiscard]] const exec::SampleMaker& maker() const { return stream.maker(); }
};

class Samples::Turn {
 public:
  explicit Turn(Samples& samples)
      : samples_(samples), refused_(samples.waiting_.fetch_add(1) >= kMostWaiting) {
    if (!refused_) samples_.mutex_.lock();
  }
  ~Turn() {
    if (!refused_) samples_.mutex_.unlock();
    samples_.waiting_.fetch_sub(1);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  [[nodiscard]] Result<void> granted() const {
    if (!refused_) return {};
    return fail(ErrorCode::kTimeout,
                fmt::format("{} requests for images are waiting: ask again later", kMostWaiting));
  }

 private:
  Samples& samples_;
  const bool refused_;
};

Result<const exec::Stream*> Samples::find(const std::string& name) const {
  const auto found = engine_.find(name);
  if (!found) return tl::make_unexpected(found.error());
  const exec::Stream& stream = engine_.stream(*found);
  if (stream.feed())
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "cannot show samples of stream `{}`: another process feeds it, and each batch can be read "
            "only once",
            name));
  return &stream;
}

Result<Samples::Shown> Samples::show(const SamplePosition& at) const {
  const auto stream = find(at.stream);
  if (!stream) return tl::make_unexpected(stream.error());
  const exec::SampleMaker& maker = (*stream)->maker();
  if (at.position >= maker.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("position {} is out of range: an epoch of stream `{}` has positions 0 to {}",
                            at.position, at.stream, maker.size() - 1));
  Shown out{**stream, std::make_unique<exec::LooseRow>(maker), {}, {}};
  exec::RowScratch scratch;
  auto row = maker.show(at.epoch, at.position, out.made->fields, scratch);
  if (!row) return tl::make_unexpected(row.error());
  auto explanation = maker.explain(at.epoch, at.position, *row);
  if (!explanation) return tl::make_unexpected(explanation.error());
  out.row = std::move(*row);
  out.explanation = std::move(*explanation);
  return out;
}

Result<Samples::Shown> Samples::show(const SamplePosition& at, const std::string& field) const {
  const auto stream = find(at.stream);
  if (!stream) return tl::make_unexpected(stream.error());
  const auto& plans = (*stream)->maker().plans();
  const auto found = std::find_if(plans.begin(), plans.end(), [&](const auto& plan) {
    return is_image(plan) && plan.spec.name == field;
  });
  if (found == plans.end())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}` has no image field `{}`", at.stream, field));
  auto shown = show(at);
  if (shown) shown->field = static_cast<std::size_t>(found - plans.begin());
  return shown;
}

Result<json> Samples::next(const std::string& name, std::uint64_t count) {
  const auto stream = find(name);
  if (!stream) return tl::make_unexpected(stream.error());
  const auto& classes = (*stream)->info().classes;
  json images = json::array();
  for (const exec::FieldPlan& plan : (*stream)->maker().plans())
    if (is_image(plan)) images.push_back(plan.spec.name);
  const publish::Position first = (*stream)->status().foremost();
  const std::uint64_t size = (*stream)->maker().size();
  const Turn turn(*this);
  if (auto granted = turn.granted(); !granted) return tl::make_unexpected(granted.error());
  json samples = json::array();
  for (std::uint64_t i = 0; i < std::min({count, kMost, size}); ++i) {
    const SamplePosition at{name, first.epoch + (first.position + i) / size, (first.position + i) % size};
    const auto shown = show(at);
    if (!shown) return tl::make_unexpected(shown.error());
    const auto& [row, explanation] = std::tie(shown->row, shown->explanation);
    const bool named = row.label >= 0 && static_cast<std::size_t>(row.label) < classes.size();
    samples.push_back({{"epoch", at.epoch},
                       {"position", at.position},
                       {"name", explanation.name},
                       {"sample_index", row.sample_index},
                       {"label", row.label},
                       {"class", named ? json(classes[static_cast<std::size_t>(row.label)]) : json()},
                       {"replaced", row.replaced},
                       {"parameters", json::parse(explanation.parameters)},
                       {"images", images}});
  }
  return json{{"samples", std::move(samples)}};
}

Result<ImageFile> Samples::row(const SamplePosition& at, const std::string& field) {
  const Turn turn(*this);
  if (auto granted = turn.granted(); !granted) return tl::make_unexpected(granted.error());
  const auto shown = show(at, field);
  if (!shown) return tl::make_unexpected(shown.error());
  const std::byte* const row = shown->made->fields[shown->field].dense;
  return as_png(
      picture_of_row(shown->maker().plans()[shown->field], {row, shown->maker().row_size(shown->field)}));
}

Result<ImageFile> Samples::original(const SamplePosition& at, const std::string& field) {
  const Turn turn(*this);
  if (auto granted = turn.granted(); !granted) return tl::make_unexpected(granted.error());
  const auto shown = show(at, field);
  if (!shown) return tl::make_unexpected(shown.error());
  const exec::SampleMaker& maker = shown->maker();
  source::Sample sample;
  if (auto read = maker.source().read(shown->explanation.sample, sample); !read)
    return tl::make_unexpected(read.error());
  const source::Item& item = sample.items[maker.plans()[shown->field].source_field];
  if (item.bytes.size() > kLargest)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} bytes, more than the {} that are shown", shown->explanation.name,
                            item.bytes.size(), kLargest));
  const bool png = !item.bytes.empty() && item.bytes.front() == 0x89;  // else a JPEG, which begins with 0xFF
  Result<ImageFile> file =
      item.pixels.width > 0
          ? as_png(picture_of_pixels(item.bytes, item.pixels))
          : ImageFile{png ? "image/png" : "image/jpeg", std::string(item.bytes.begin(), item.bytes.end())};
  if (const auto lost = maker.fault()) return tl::make_unexpected(*lost);  // the bytes may have been replaced
  return file;
}

}  // namespace headrace::server::status
