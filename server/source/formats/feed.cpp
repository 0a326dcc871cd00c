#include "server/source/formats/feed.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "server/described/names.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr std::uint64_t kLargestSlot = std::uint64_t{1} << 40;

/// kLargestSlot + 1 for every larger product.
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  return b != 0 && a > kLargestSlot / b ? kLargestSlot + 1 : a * b;
}

std::uint64_t aligned(std::uint64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Feed::Feed(FeedOptions options)
    : options_(std::move(options)),
      batches_((options_.samples + options_.batch_size - 1) / options_.batch_size),
      slots_(options_.slots) {}

Result<std::shared_ptr<Feed>> Feed::make(FeedOptions options) {
  if (options.fields.empty() || options.samples == 0 || options.batch_size == 0 || options.slots == 0)
    return fail(ErrorCode::kConfigInvalid, "a feed needs fields, samples, a batch size and slots");
  auto feed = std::shared_ptr<Feed>(new Feed(std::move(options)));
  if (auto fits = feed->lay_out(); !fits) return fail(fits.error());
  return feed;
}

Result<void> Feed::lay_out() {
  for (const FeedField& field : options_.fields) {
    FieldPlace place;
    place.value_bytes = size_of(field.dtype);
    for (const std::int64_t side : field.shape)
      place.value_bytes = times(place.value_bytes, static_cast<std::uint64_t>(side));
    const bool ragged = field.most_values > 0;
    const std::uint64_t values = times(place.value_bytes, ragged ? field.most_values : options_.batch_size);
    place.values = slot_bytes_;
    slot_bytes_ += aligned(values);
    place.offsets = slot_bytes_;
    if (ragged) slot_bytes_ += aligned((std::uint64_t{options_.batch_size} + 1) * sizeof(std::int64_t));
    if (slot_bytes_ > kLargestSlot)
      return fail(
          ErrorCode::kConfigInvalid,
          fmt::format("field `{}`: a batch of {} rows would have more than 1 TB; make batches smaller",
                      field.name, options_.batch_size));
    places_.push_back(place);
  }
  return {};
}

std::uint32_t Feed::rows_of(std::uint64_t batch) const {
  const std::uint64_t first = batch % batches_ * options_.batch_size;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.batch_size, options_.samples - first));
}

std::string Feed::where(std::uint64_t batch) const {
  return fmt::format("batch {} of epoch {}", batch % batches_, batch / batches_);
}

Result<void> Feed::allocate() {
  auto memory =
      ring::Segment::create("headrace-feed", slot_bytes_ * options_.slots, ring::ClientAccess::kReadWrite);
  if (!memory) return fail(memory.error());
  memory_ = std::move(*memory);
  return {};
}

Result<void> Feed::take_offsets(const Batch& batch, std::vector<std::vector<std::int64_t>>& out) const {
  out.resize(options_.fields.size());
  const std::byte* const base = memory_->data() + batch.slot * slot_bytes_;
  for (std::size_t f = 0; f < out.size(); ++f) {
    const FeedField& field = options_.fields[f];
    if (field.most_values == 0) continue;
    std::vector<std::int64_t>& offsets = out[f];
    offsets.resize(batch.rows + 1);
    std::memcpy(offsets.data(), base + places_[f].offsets, offsets.size() * sizeof offsets[0]);
    if (offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end()) ||
        static_cast<std::uint64_t>(offsets.back()) > field.most_values)
      return fail(ErrorCode::kBadMessage,
                  fmt::format("{}, field `{}`: offsets must rise from 0 to at most {} (most_values)",
                              where(batch.number), field.name, field.most_values));
  }
  return {};
}

Result<void> Feed::accept(const Batch& batch) {
  const std::scoped_lock lock(mutex_);
  if (batch.number != received_)
    return fail(ErrorCode::kBadMessage,
                fmt::format("expected batch number {}, found {}: batches must come in order, each once",
                            received_, batch.number));
  if (batch.slot >= slots_.size() || slots_[batch.slot].holds.load(std::memory_order_relaxed) != 0)
    return fail(ErrorCode::kBadMessage,
                fmt::format("{} arrived in slot {}, which is not free", where(batch.number), batch.slot));
  if (batch.rows != rows_of(batch.number))
    return fail(ErrorCode::kBadMessage, fmt::format("{}: expected {} rows, found {}", where(batch.number),
                                                    rows_of(batch.number), batch.rows));
  Slot& slot = slots_[batch.slot];
  if (auto sound = take_offsets(batch, slot.offsets); !sound) return sound;
  ++received_;
  slot.holds.store(batch.number + 1, std::memory_order_release);  // SYNC feed-slot
  return {};
}

std::uint64_t Feed::received() const {
  const std::scoped_lock lock(mutex_);
  return received_;
}

void Feed::release(std::uint64_t batch) {
  const std::scoped_lock lock(mutex_);
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].holds.load(std::memory_order_relaxed) != batch + 1) continue;
    slots_[s].holds.store(0, std::memory_order_release);
    if (freed_) freed_(static_cast<std::uint32_t>(s));
  }
}

void Feed::when_freed(std::function<void(std::uint32_t)> tell) {
  const std::scoped_lock lock(mutex_);
  freed_ = std::move(tell);
}

std::optional<Feed::HeldBatch> Feed::held(std::uint64_t batch) const {
  for (std::size_t s = 0; s < slots_.size(); ++s)
    if (slots_[s].holds.load(std::memory_order_acquire) == batch + 1)  // SYNC feed-slot
      return HeldBatch{memory_->data() + s * slot_bytes_, &slots_[s].offsets};
  return std::nullopt;
}

Fed::Fed(std::shared_ptr<Feed> feed) : feed_(std::move(feed)) {
  for (const FeedField& field : feed_->options().fields)
    fields_.push_back({.name = field.name,
                       .content = field.most_values > 0 ? Content::kRagged : Content::kValues,
                       .dtype = field.dtype,
                       .shape = field.shape});
  if (::getrandom(&fingerprint_, sizeof fingerprint_, 0) != sizeof fingerprint_) std::abort();
}

std::uint64_t Fed::size() const {
  return std::numeric_limits<std::uint64_t>::max() / 2;
}

Result<void> Fed::read(std::uint64_t index, Sample& out) const {
  const FeedOptions& options = feed_->options();
  const std::uint64_t position = index % options.samples;
  const std::uint64_t batch = index / options.samples * feed_->batches() + position / options.batch_size;
  const auto held = feed_->held(batch);
  if (!held)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} of feed `{}` is not available: it was released, or has not arrived yet",
                            feed_->where(batch), options.name));
  const std::uint64_t row = position % options.batch_size;
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    const Feed::FieldPlace& place = feed_->places()[f];
    const auto* const values = reinterpret_cast<const std::uint8_t*>(held->slot + place.values);
    std::uint64_t first = row, last = row + 1;
    if (fields_[f].content == Content::kRagged) {
      first = static_cast<std::uint64_t>((*held->offsets)[f][row]);
      last = static_cast<std::uint64_t>((*held->offsets)[f][row + 1]);
    }
    out.item(f).bytes = {values + first * place.value_bytes, (last - first) * place.value_bytes};
  }
  return {};
}

std::uint64_t Fed::whole_index(std::uint64_t index) const {
  return index % feed_->options().samples;
}

std::uint64_t Fed::most_values(std::size_t field, std::uint64_t rows) const {
  return rows == 0 ? 0 : feed_->options().fields[field].most_values;
}

std::string Fed::name(std::uint64_t index) const {
  return fmt::format("{}/{}/{}", feed_->options().name, index / feed_->options().samples,
                     index % feed_->options().samples);
}

namespace {

described::Description<FeedField> feed_field() {
  using Self = FeedField;
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  return {
      "",
      "",
      {described::required("name", &Self::name, described::field()),
       described::required("dtype", &Self::dtype,
                           described::dtype({DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32,
                                             DType::kInt64, DType::kFloat16, DType::kBFloat16,
                                             DType::kFloat32, DType::kFloat64, DType::kBool})),
       described::without_default(described::key(
           "shape", &Self::shape, described::list(described::integer<std::int64_t>(1, kMost), 0, 5),
           "Shape of a row, or of one value of a ragged field. Default: a single number.")),
       described::without_default(described::key(
           "most_values", &Self::most_values, described::integer<std::uint64_t>(1, kMost),
           "Makes the field ragged: a row has any number of values, and a batch has at most this many."))}};
}

}  // namespace

described::Description<FeedOptions> FeedOptions::description() {
  using Self = FeedOptions;
  return {
      "feed",
      "A live stream of batches that another process sends, each delivered once. headrace.share() starts "
      "one.",
      {described::required("fields", &Self::fields, described::list(described::object(feed_field()), 1, 32)),
       described::required("samples", &Self::samples, described::integer<std::uint64_t>(1, 1'000'000'000'000),
                           "Samples in an epoch."),
       described::required("batch_size", &Self::batch_size, described::integer<std::uint32_t>(1, 1'000'000)),
       described::key("slots", &Self::slots, described::integer<std::uint32_t>(2, 64),
                      "Batches that the sending process may send before the server reads them.")}};
}

namespace types {
SourceType feed() {
  return source_type<FeedOptions>(
      {.cache = false, .io = false, .split = false},
      [](const FeedOptions& options, const OpenContext& context) -> Result<SourcePtr> {
        FeedOptions all = options;
        all.name = context.name;
        auto made = Feed::make(std::move(all));
        if (!made) return fail(made.error());
        return std::make_shared<Fed>(std::move(*made));
      });
}
}  // namespace types

}  // namespace headrace::server::source
