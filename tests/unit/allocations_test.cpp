// A warm worker makes samples without allocating memory. This program's operators new count that, and its
// malloc, which the libraries call. PNG and progressive JPEG still need some allocations: see kMallocsOf.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>

#include "server/cache/encoded_source.h"
#include "server/pictures/png_file.h"
#include "server/source/formats/image_folder.h"
#include "server/source/formats/paired_folders.h"
#include "server/source/formats/pixel_table.h"
#include "server/transform/ops/ops.h"
#include "tests/engine_fixture.h"
#include "tests/pixels/make_jpeg.h"
#include "tests/replaced_new.h"
#include "tests/temp_folder.h"

// A sanitizer replaces malloc itself.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADRACE_COUNTS_MALLOC 0
#else
#define HEADRACE_COUNTS_MALLOC 1
#endif

namespace {
std::atomic<std::uint64_t> news{0}, mallocs{0};
}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp, readability-identifier-naming):
// glibc's names
#if HEADRACE_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);

// Visible, so that shared libraries use them, too.
[[gnu::visibility("default")]] void* malloc(std::size_t size) {
  mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t size) {
  mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, size);
}
[[gnu::visibility("default")]] void* realloc(void* memory, std::size_t size) {
  mallocs.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, size);
}
}
#endif
// NOLINTEND(bugprone-reserved-identifier, cert-dcl37-c, cert-dcl51-cpp, readability-identifier-naming)

namespace headrace::testing {
void* allocate(std::size_t size, std::size_t alignment) {
  news.fetch_add(1, std::memory_order_relaxed);
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(size)  // NOLINT(cppcoreguidelines-no-malloc): this is operator new
                           : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace headrace::testing

namespace headrace::testing {
namespace {

using namespace server::transform;
using server::exec::FieldTarget;
using server::exec::RowScratch;
using server::metrics::StreamCounters;
using server::source::Source;

using Bytes = std::vector<std::uint8_t>;

StreamPlan plan_of(std::vector<Transform> transforms, Output output = {}) {
  StreamPlan plan;
  plan.chain.transforms = std::move(transforms);
  plan.chain.output = output;
  return plan;
}

/// Calls of operator new, and of malloc and its relatives, including those by operator new.
struct Counts {
  std::uint64_t news = 0, mallocs = 0;
  static Counts now() { return {::news, ::mallocs}; }
  friend Counts operator-(const Counts& a, const Counts& b) {
    return {a.news - b.news, a.mallocs - b.mallocs};
  }
  friend bool operator==(const Counts&, const Counts&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Counts& counts) {
    return out << counts.news << " operators new, " << counts.mallocs << " mallocs";
  }
};

/// The work of a worker for a batch, repeated.
class Worker {
 public:
  explicit Worker(std::shared_ptr<const SampleMaker> maker) : maker_(std::move(maker)) {
    for (std::size_t f = 0; f < maker_->fields().size(); ++f)
      fields_.emplace_back(kSlice * maker_->row_size(f));
  }

  /// The allocations of an epoch.
  Counts epoch(std::uint64_t number) {
    const Counts before = Counts::now();
    const auto order = maker_->order(number);
    for (std::uint64_t first = 0; first < maker_->size(); first += kSlice) {
      targets_.clear();
      for (auto& field : fields_) targets_.push_back({field.data(), nullptr});
      const auto ready = maker_->make_slice(order, number, first, kSlice, targets_, scratch_, counters_);
      for (std::uint32_t i = 0; i < kSlice; ++i) {
        if (ready.empty() || !ready[i].made) {
          const std::uint64_t position = (first + i) % maker_->size();
          EXPECT_TRUE(maker_->make(order, number, position, targets_, scratch_, counters_));
          ++alone_;
        }
        for (std::size_t f = 0; f < targets_.size(); ++f) targets_[f].dense += maker_->row_size(f);
      }
    }
    return Counts::now() - before;
  }
  [[nodiscard]] std::uint64_t alone() const { return alone_; }

 private:
  static constexpr std::uint32_t kSlice = 20;
  std::shared_ptr<const SampleMaker> maker_;
  std::vector<std::vector<std::byte>> fields_;
  std::vector<FieldTarget> targets_;
  RowScratch scratch_;
  StreamCounters counters_;
  std::uint64_t alone_ = 0;
};

std::shared_ptr<const Source> pixels(std::int32_t side, std::int32_t channels, std::uint64_t count) {
  const std::size_t size =
      static_cast<std::size_t>(side) * static_cast<std::size_t>(side) * static_cast<std::size_t>(channels);
  server::source::PixelTable table;
  table.shape = {side, side, channels, channels == 3};
  table.files.push_back({"f", Bytes(count * size, 9), 0, size, count});
  table.labels.resize(count);
  table.classes = {"0"};
  return server::source::make_pixel_source(std::move(table));
}

/// The largest number of mallocs per sample. For a progressive JPEG libjpeg-turbo (2.1.5) allocates the
/// coefficients of the whole image, and clears them. libspng (0.7.3) allocates for each image, which takes
/// 0.1% of the decoding time.
constexpr std::pair<const char*, std::uint64_t> kMallocsOf[] = {{"jpeg", 0}, {"progressive", 4}, {"png", 5}};

const Transform kGray = make_op("normalize", {{"mean", {0.13}}, {"std", {0.31}}}),
                kColor = make_op("normalize", {{"mean", {0.5, 0.4, 0.3}}, {"std", {0.2, 0.2, 0.2}}});
const Output kFloats{DType::kFloat32, PixelLayout::kNchw};

TEST(Allocations, AreNoneForSmallPicturesInMemory) {
  const std::vector<Transform> augmented = {
      make_op("random_crop", {{"size", {32, 32}}, {"padding", {4, 4, 4, 4}}}),
      make_op("random_horizontal_flip")};
  std::vector<Transform> normalized = augmented;
  normalized.emplace_back(kColor);
  for (const auto& maker : {make_samples(pixels(28, 1, 2000), {}, plan_of({kGray}, kFloats)),
                            make_samples(pixels(28, 1, 2000), {}, plan_of({})),
                            make_samples(pixels(32, 3, 2000), {}, plan_of(normalized, kFloats)),
                            make_samples(pixels(32, 3, 2000), {}, plan_of(augmented))}) {
    Worker worker(maker);
    worker.epoch(0);
    EXPECT_EQ(worker.epoch(1), Counts{});
    EXPECT_EQ(worker.alone(), 0U);
  }
}

class FromFiles : public ::testing::Test {
 protected:
  static std::string text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
  TempFolder folder_;
};

TEST_F(FromFiles, PairsInTheDecodedCacheTakeNone) {
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto png = [&](std::int32_t side) {
      const Bytes bytes(static_cast<std::size_t>(side * side * 3), static_cast<std::uint8_t>(i));
      return text(server::pictures::encode_png(bytes, {side, side, 3, false}).value());
    };
    folder_.put("lr/" + std::to_string(i) + ".png", png(60));
    folder_.put("hr/" + std::to_string(i) + ".png", png(240));
  }
  const auto source = server::source::open_paired_folders(
                          {{"lr", {.path = folder_.path() / "lr"}}, {"hr", {.path = folder_.path() / "hr"}}})
                          .value();
  const auto caches = caches_of(server::cache::Arena::create("a", 64 << 20).value(), source->size(), 2);
  Worker worker(
      make_samples(source, {.decoded = caches},
                   plan_of({make_op("random_crop", {{"size", {48, 48}}}), make_op("random_horizontal_flip"),
                            make_op("random_vertical_flip"), make_op("random_rotate90")},
                           kFloats)));
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) worker.epoch(epoch);
  const std::uint64_t alone = worker.alone();
  for (std::uint64_t epoch = 4; epoch < 30; ++epoch) EXPECT_EQ(worker.epoch(epoch), Counts{});
  EXPECT_EQ(worker.alone(), alone) << "each crop came from the cache";
}

/// Counts after a worker has processed all of them; runs the same epochs twice.
Counts most_of_an_epoch(const std::shared_ptr<const Source>& files, const StreamPlan& plan) {
  Worker worker(make_samples(
      server::cache::keep_encoded(files, server::cache::Arena::create("a", 64 << 20).value()), {}, plan));
  Counts most;
  // A resize builds its table when a length first occurs, so these epochs run twice.
  for (const bool warm : {false, true})
    for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
      const Counts counts = worker.epoch(epoch);
      if (!warm) continue;
      most.news = std::max(most.news, counts.news);
      most.mallocs = std::max(most.mallocs, counts.mallocs);
    }
  return most;
}

TEST_F(FromFiles, ImageCropsTakeNoneButForTheDecodersOwn) {
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto name = "cat/" + std::to_string(i);
    folder_.put("jpeg/" + name + ".jpg", text(pixels::make_jpeg({.width = 200, .height = 150, .seed = i})));
    folder_.put("progressive/" + name + ".jpg",
                text(pixels::make_jpeg({.width = 200, .height = 150, .progressive = true, .seed = i})));
    folder_.put("png/" + name + ".png",
                text(server::pictures::encode_png(Bytes(200 * 150 * 3, static_cast<std::uint8_t>(i)),
                                                  {200, 150, 3, false})
                         .value()));
  }
  for (const auto& [kind, mallocs] : kMallocsOf)
    for (const auto& transforms :
         {std::vector<Transform>{make_op("random_resized_crop", {{"size", {64, 64}}}),
                                 make_op("random_horizontal_flip")},
          {make_op("random_crop", {{"size", {96, 96}}}), make_op("random_rotate90")},
          {make_op("random_horizontal_flip"), make_op("resize", {{"size", {70, 70}}}),
           make_op("random_crop", {{"size", {64, 64}}})}}) {
      const auto files = server::source::open_image_folder(folder_.path() / kind).value();
      const Counts counts = most_of_an_epoch(files, plan_of(transforms, kFloats));
      EXPECT_EQ(counts.news, 0U) << kind;
      EXPECT_LE(counts.mallocs, mallocs * files->size()) << kind;
    }
}

TEST(Allocations, IncludeThoseOfLibraries) {
  if (!HEADRACE_COUNTS_MALLOC) GTEST_SKIP() << "the sanitizer's malloc is not counted";
  const Counts before = Counts::now();
  pixels::make_jpeg({.width = 16, .height = 16});
  const Counts counts = Counts::now() - before;
  EXPECT_GT(counts.mallocs, counts.news) << "libjpeg's";
}

}  // namespace
}  // namespace headrace::testing
