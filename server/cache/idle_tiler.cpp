#include "server/cache/idle_tiler.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "clientlib/ring/futex.h"

namespace headrace::server::cache {
namespace {

std::vector<bool> images_of(const std::vector<source::SourceField>& fields) {
  std::vector<bool> images;
  images.reserve(fields.size());
  for (const source::SourceField& field : fields)
    images.push_back(field.content == source::Content::kEncodedImage && !field.mask);
  return images;
}

}  // namespace

IdleTiler::IdleTiler(std::shared_ptr<SampleCache> cache, std::uint64_t samples,
                     const std::vector<source::SourceField>& fields)
    : cache_(std::move(cache)),
      images_(images_of(fields)),
      images_per_sample_(static_cast<std::uint64_t>(std::count(images_.begin(), images_.end(), true))),
      settled_(std::make_unique<std::atomic<bool>[]>(samples)) {
  waiting_.reserve(samples);  // so that admitting samples does not allocate
}

std::vector<std::uint64_t> IdleTiler::room_for(std::span<const Piece> pieces) const {
  std::vector<std::uint64_t> room(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (images_[i]) room[i] = decode::JpegTiler::room(pieces[i].bytes, kMostPixels);
  return room;
}

void IdleTiler::admitted(std::uint64_t index, std::span<const std::uint64_t> room) {
  const bool open = std::any_of(room.begin(), room.end(), [](std::uint64_t bytes) { return bytes > 0; });
  if (!open) settle(index);
  const std::scoped_lock lock(mutex_);
  if (open) {
    waiting_.push_back(index);
    waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
  } else {
    counts_.untiled += images_per_sample_;
  }
}

void IdleTiler::copy(std::uint64_t index, source::Sample& out) {
  const std::shared_lock lock(lock_of(index));
  const std::span<const Piece> pieces = cache_->kept(index);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    source::Item& item = out.item(i);
    item.own(pieces[i].bytes.size());
    std::copy(pieces[i].bytes.begin(), pieces[i].bytes.end(), item.storage.begin());
    item.pixels = pieces[i].pixels;
  }
}

std::vector<IdleTiler::Tiled> IdleTiler::tile(std::span<const Piece> pieces,
                                              std::optional<decode::JpegTiler>& tiler) const try {
  if (!tiler) tiler.emplace();
  std::vector<Tiled> all;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!images_[i] || pieces[i].capacity <= pieces[i].bytes.size()) continue;  // no room was reserved for it
    Tiled made{i, {}};
    if (tiler->tile(pieces[i].bytes, made.bytes) == decode::Tiling::kTiled) all.push_back(std::move(made));
  }
  return all;
} catch (const std::exception&) {
  tiler.reset();
  return {};  // no memory for it
}

void IdleTiler::tile_one(std::optional<decode::JpegTiler>& tiler) {
  const std::uint64_t begin = ring::monotonic_ns();
  std::uint64_t index = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) return;
    index = waiting_.back();
    waiting_.pop_back();
    waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
  }
  const std::span<const Piece> pieces = cache_->kept(index);
  const std::vector<Tiled> tiled = tile(pieces, tiler);
  std::uint64_t images = 0, before = 0, after = 0;
  {
    const std::scoped_lock lock(lock_of(index));
    for (const Tiled& made : tiled) {
      const std::uint64_t was = pieces[made.piece].bytes.size();
      if (!cache_->rewrite(index, made.piece, made.bytes)) continue;
      ++images;
      before += was;
      after += made.bytes.size();
    }
  }
  settle(index);
  const std::scoped_lock lock(mutex_);
  counts_.tiled += images;
  counts_.untiled += images_per_sample_ - images;
  counts_.bytes_before += before;
  counts_.bytes += after;
  counts_.busy_ns += ring::monotonic_ns() - begin;
}

IdleTiler::Counts IdleTiler::counts() const {
  const std::scoped_lock lock(mutex_);
  Counts now = counts_;
  now.waiting = waiting_.size();
  return now;
}

}  // namespace headrace::server::cache
