#include "server/pack/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/pack/in_order.h"
#include "server/pictures/png_file.h"
#include "server/transform/ops/ops.h"

namespace headrace::server::pack {
namespace {

constexpr std::uint64_t kAtOnce = 16;

struct Sizes {
  std::uint64_t bytes = 0, stored = 0;
};

/// One sample, reused by its thread.
struct Seen {
  source::Sample sample;
  std::vector<Sizes> fields;
  bool unreadable = false;
  std::optional<std::int64_t> label;
};

class Sum {
 public:
  Sum(std::size_t fields, const OnProgress& on_progress) : on_progress_(on_progress) {
    all_.fields.resize(fields);
  }

  void add(const Seen& seen) {
    const bool first = all_.samples++ == all_.unreadable;
    if (seen.label) ++all_.per_label[*seen.label];
    if (seen.unreadable) {
      ++all_.unreadable;
      return;
    }
    for (std::size_t f = 0; f < seen.fields.size(); ++f) {
      FieldSizes& sizes = all_.fields[f];
      const Sizes& one = seen.fields[f];
      sizes.total += one.bytes;
      sizes.stored += one.stored;
      sizes.least = first ? one.bytes : std::min(sizes.least, one.bytes);
      sizes.most = std::max(sizes.most, one.bytes);
      bytes_ += one.bytes;
    }
  }
  void on_progress() const { on_progress_(all_.samples, bytes_); }
  Survey result() && { return std::move(all_); }

 private:
  const OnProgress& on_progress_;
  Survey all_;
  std::uint64_t bytes_ = 0;
};

/// `look(index, seen)` fills all of `seen`; `of` is its input.
template <class Of, class Look>
Result<Survey> walk(const Of& of, std::size_t fields, unsigned threads, const OnProgress& on_progress,
                    Look look) {
  const std::uint64_t count = of.size();
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  Result<void> done;
  Sum sum(fields, on_progress);
  {
    const ThreadGroup group(threads, [&] {
      Seen seen;
      seen.fields.resize(fields);
      for (;;) {
        const std::uint64_t begin = next.fetch_add(kAtOnce);
        if (begin >= count) return;
        for (std::uint64_t i = begin; i < std::min(begin + kAtOnce, count); ++i) {
          Result<void> looked = look(i, seen);
          const std::scoped_lock lock(mutex);
          if (!looked) {
            if (done) done = std::move(looked);
            next = count;
            return;
          }
          sum.add(seen);
        }
        const std::scoped_lock lock(mutex);
        sum.on_progress();
      }
    });
  }
  if (!done) return fail(done.error());
  if (const auto lost = of.fault()) return fail(*lost);
  return std::move(sum).result();
}

}  // namespace

Result<Survey> survey(const source::Source& source, unsigned threads, const OnProgress& on_progress) {
  return walk(source, source.fields().size(), threads, on_progress,
              [&source](std::uint64_t index, Seen& seen) -> Result<void> {
                auto read = source.read(index, seen.sample);
                if (!read && read.error().code != ErrorCode::kBadSample) return read;
                seen.unreadable = !read;
                if (source.labelled()) seen.label = source.label(index);
                for (std::size_t f = 0; read && f < seen.fields.size(); ++f)
                  seen.fields[f].bytes = seen.sample.items[f].bytes.size();
                return {};
              });
}

Result<Survey> survey(const store::Store& store, unsigned threads, const OnProgress& on_progress) {
  return walk(store, store.meta().fields.size(), threads, on_progress,
              [&store](std::uint64_t index, Seen& seen) -> Result<void> {
                const auto record = store.record(index, store::Store::Extent::kHeads);
                if (!record) return fail(record.error());
                seen.unreadable = record->head().unreadable != 0;
                if (store.meta().labelled) seen.label = store.label(index);
                for (std::size_t f = 0; f < seen.fields.size(); ++f)
                  seen.fields[f] = {record->field(f).bytes, record->field(f).stored};
                return {};
              });
}

Result<std::vector<std::uint8_t>> contact_sheet(const source::Source& source) {
  const auto& fields = source.fields();
  const auto image =
      std::find_if(fields.begin(), fields.end(), [](const auto& field) { return field.is_image(); });
  if (image == fields.end())
    return fail(ErrorCode::kInvalidArgument, "no field is an image, so no sheet can be made");
  const auto at = static_cast<std::size_t>(image - fields.begin());
  const transform::PlanConfig config{.transforms = {transform::make_op("resize", {{"size", kCellSide}}),
                                                    transform::make_op("center_crop", {{"size", kCellSide}})},
                                     .output = {DType::kUInt8, transform::PixelLayout::kNhwc}};
  const auto plan = transform::Plan::compile(config);
  if (!plan) return fail(plan.error());

  constexpr std::int32_t kSide = kSheetCells * kCellSide;
  constexpr std::size_t kRow = std::size_t{kCellSide} * 3;
  constexpr std::uint64_t kCells = std::uint64_t{kSheetCells} * kSheetCells;
  std::vector<std::uint8_t> sheet(std::size_t{kSide} * kSide * 3);
  std::vector<std::uint8_t> cell(kRow * kCellSide);
  source::Sample sample;
  transform::Scratch scratch;
  const std::uint64_t shown = std::min(kCells, source.size());
  for (std::uint64_t i = 0; i < shown; ++i) {
    const auto read = source.read(i * source.size() / shown, sample);
    if (!read && read.error().code != ErrorCode::kBadSample) return fail(read.error());
    if (!read ||
        plan->render(sample.items[at].image(), {0, 0, 0}, scratch, reinterpret_cast<std::byte*>(cell.data()))
                .bad != decode::BadReason::kNone) {
      for (std::size_t p = 0; p < cell.size(); ++p) cell[p] = p % 3 == 0 ? 160 : 0;
    }
    const std::size_t left = i % kSheetCells * kRow;
    const std::size_t top = i / kSheetCells * kCellSide;
    for (std::size_t y = 0; y < static_cast<std::size_t>(kCellSide); ++y)
      std::memcpy(sheet.data() + (top + y) * kRow * kSheetCells + left, cell.data() + y * kRow, kRow);
  }
  if (const auto lost = source.fault()) return fail(*lost);
  return pictures::encode_png(sheet, {kSide, kSide, 3, false});
}

}  // namespace headrace::server::pack
