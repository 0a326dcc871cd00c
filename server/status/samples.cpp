#include "server/status/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/pictures/png_file.h"
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

Result<ImageFile> as_png(const pictures::Picture& picture) {
  const auto file = pictures::encode_png(picture.pixels, picture.shape);
  if (!file) return tl::make_unexpected(file.error());
  return ImageFile{"image/png", {file->begin(), file->end()}};
}

Result<ImageFile> original_of(const exec::SampleMaker& maker, std::size_t field,
                              const exec::ShownRow& shown) {
  source::Sample sample;
  if (auto read = maker.source().read(shown.explanation.sample, sample); !read)
    return tl::make_unexpected(read.error());
  const source::Item& item = sample.items[maker.plans()[field].source_field];
  if (item.bytes.size() > kLargest)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has {} bytes, more than the {} that are shown", shown.explanation.name,
                            item.bytes.size(), kLargest));
  const bool png = !item.bytes.empty() && item.bytes.front() == 0x89;  // else a JPEG, which begins with 0xFF
  Result<ImageFile> file =
      item.pixels.width > 0
          ? as_png(pictures::interleaved(item.bytes, item.pixels))
          : ImageFile{png ? "image/png" : "image/jpeg", std::string(item.bytes.begin(), item.bytes.end())};
  if (const auto lost = maker.fault()) return tl::make_unexpected(*lost);  // the bytes may have been replaced
  return file;
}

}  // namespace

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

Result<exec::ShownRow> Samples::show(const exec::SampleMaker& maker, const SamplePosition& at) {
  if (at.position >= maker.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("position {} is out of range: an epoch of stream `{}` has positions 0 to {}",
                            at.position, at.stream, maker.size() - 1));
  exec::RowScratch scratch;
  return exec::show_row(maker, at.epoch, at.position, scratch);
}

Result<ImageFile> Samples::show_image(const SamplePosition& at, const std::string& field, Draw draw) {
  const Turn turn(*this);
  if (auto granted = turn.granted(); !granted) return tl::make_unexpected(granted.error());
  const auto stream = find(at.stream);
  if (!stream) return tl::make_unexpected(stream.error());
  const exec::SampleMaker& maker = (*stream)->maker();
  const auto& plans = maker.plans();
  const auto plan = std::find_if(plans.begin(), plans.end(),
                                 [&](const auto& one) { return is_image(one) && one.spec.name == field; });
  if (plan == plans.end())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}` has no image field `{}`", at.stream, field));
  const auto shown = show(maker, at);
  if (!shown) return tl::make_unexpected(shown.error());
  return draw(maker, static_cast<std::size_t>(plan - plans.begin()), *shown);
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
    const auto shown = show((*stream)->maker(), at);
    if (!shown) return tl::make_unexpected(shown.error());
    const auto& [fields, row, explanation] = *shown;
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
  return show_image(at, field,
                    [](const exec::SampleMaker& maker, std::size_t index,
                       const exec::ShownRow& shown) -> Result<ImageFile> {
                      auto file = png_of_row(maker, index, shown);
                      if (!file) return fail(file.error());
                      return ImageFile{"image/png", std::move(*file)};
                    });
}

Result<ImageFile> Samples::original(const SamplePosition& at, const std::string& field) {
  return show_image(at, field, original_of);
}

}  // namespace headrace::server::status
