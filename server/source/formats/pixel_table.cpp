#include "server/source/formats/pixel_table.h"

#include <fmt/format.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "server/placement/apply.h"
#include "server/source/labels.h"

namespace headrace::server::source {
namespace {

/// Samples are read in random order, so with pages of 4 KiB each read misses the TLB. This is only a hint: a
/// refusal by the kernel is no error.
void want_huge_pages(std::span<const std::uint8_t> bytes) {
#ifdef MADV_COLLAPSE
  constexpr std::uintptr_t kHuge = placement::kHugePage;
  const auto first = (reinterpret_cast<std::uintptr_t>(bytes.data()) + kHuge - 1) / kHuge * kHuge;
  const auto last = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / kHuge * kHuge;
  if (first >= last || !placement::huge_pages_would_lie_in_turn()) return;
  void* const memory =
      reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr): pages are numbers
  ::madvise(memory, last - first, MADV_COLLAPSE);
  placement::interleave_huge_pages(memory, last - first);
#else
  static_cast<void>(bytes);
#endif
}

class PixelSource final : public Source {
 public:
  explicit PixelSource(PixelTable table)
      : table_(std::move(table)),
        fields_{{.name = "image",
                 .content = Content::kPixels,
                 .channels = table_.shape.channels,
                 .height = table_.shape.height,
                 .width = table_.shape.width}},
        bytes_(static_cast<std::size_t>(table_.shape.width) * static_cast<std::size_t>(table_.shape.height) *
               static_cast<std::size_t>(table_.shape.channels)) {
    std::uint64_t before = 0;
    for (const PixelFile& file : table_.files) ends_.push_back(before += file.count);
  }

  [[nodiscard]] std::uint64_t size() const override { return ends_.back(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    const auto [file, at] = find(index);
    Item& image = out.item(0);
    image.bytes = std::span(file->bytes).subspan(file->first + at * file->stride, bytes_);
    image.pixels = table_.shape;
    return {};
  }
  bool view_samples(SampleView& view) const override {
    view.pixels.assign(1, table_.shape);
    view.items.resize(view.indices.size());
    for (std::size_t i = 0; i < view.items.size(); ++i) {
      const auto [file, at] = find(view.indices[i]);
      view.items[i] = std::span(file->bytes).subspan(file->first + at * file->stride, bytes_);
      if (view.indices[i] < table_.labels.size()) __builtin_prefetch(&table_.labels[view.indices[i]], 0, 2);
    }
    return true;
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return table_.labels.at(index); }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    const auto [file, at] = find(index);
    return fmt::format("{}#{}", file->name, at);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return table_.classes; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return table_.fingerprint; }

 private:
  /// The file, and the image's index in it.
  [[nodiscard]] std::pair<const PixelFile*, std::uint64_t> find(std::uint64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const PixelFile& file = table_.files.at(static_cast<std::size_t>(end - ends_.begin()));
    return {&file, index - (*end - file.count)};
  }

  const PixelTable table_;
  const std::vector<SourceField> fields_;
  const std::size_t bytes_;  // of one image
  std::vector<std::uint64_t> ends_;
};

}  // namespace

std::shared_ptr<const Source> make_pixel_source(PixelTable table) {
  for (const PixelFile& file : table.files) want_huge_pages(file.bytes);
  return std::make_shared<PixelSource>(std::move(table));
}

std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::vector<std::string> numbered_classes(const std::vector<std::uint8_t>& labels) {
  const int most = labels.empty() ? -1 : *std::max_element(labels.begin(), labels.end());
  return numbered_classes(std::int64_t{most} + 1);
}

}  // namespace headrace::server::source
