#include "server/cache/encoded_source.h"

#include <atomic>
#include <utility>

#include "server/cache/sample_cache.h"
#include "server/source/combine/forwarding.h"

namespace headrace::server::cache {
namespace {

using source::Item;
using source::Sample;

class EncodedSource final : public source::ForwardingSource {
 public:
  EncodedSource(std::shared_ptr<const source::Source> inner, std::shared_ptr<SampleCache> cache,
                std::shared_ptr<IdleTiler> tiler)
      : ForwardingSource(std::move(inner)), cache_(std::move(cache)), tiler_(std::move(tiler)) {}

  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, source::FieldSet::all(), out);
  }
  /// Keeps the fields that some stream reads. If they cannot all be read, reads only the wanted ones.
  Result<void> read_fields(std::uint64_t index, source::FieldSet wanted, Sample& out) const override {
    const std::size_t count = fields().size();
    const source::FieldSet announced = announced_.load(std::memory_order_relaxed);
    const source::FieldSet kept = announced.has_any(count) ? announced : source::FieldSet::all();
    if (!kept.covers(wanted, count)) return real().read_fields(index, wanted, out);  // no stream's read
    SampleCache::Found found = cache_->lookup(index);
    cache_->arena().count_lookup(!found.pieces.empty());
    if (!found.pieces.empty()) {
      give(index, found.pieces, out);
      return {};
    }
    if (auto done = real().read_fields(index, kept, out); !done)
      return wanted.covers(kept, count) ? done : real().read_fields(index, wanted, out);
    if (!found.claim) return {};
    std::vector<Piece> pieces(count);
    for (std::size_t i = 0; i < count; ++i)
      if (kept.has(i)) pieces[i] = {out.items[i].bytes, out.items[i].pixels, {}};
    const auto room = tiler_ ? tiler_->room_for(pieces) : std::vector<std::uint64_t>();
    if (!std::move(*found.claim).admit(pieces, room)) {
      cache_->arena().count_refusal();
      return {};
    }
    cache_->arena().count_sample();
    if (tiler_) tiler_->admitted(index, room);
    return {};
  }

  void will_read(source::FieldSet wanted) const override {
    announced_.store(announced_.load(std::memory_order_relaxed) | wanted, std::memory_order_relaxed);
  }

 private:
  void give(std::uint64_t index, std::span<const Piece> pieces, Sample& out) const {
    if (tiler_ && !tiler_->settled(index)) return tiler_->copy(index, out);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Item& item = out.item(i);
      item.bytes = pieces[i].bytes;
      item.pixels = pieces[i].pixels;
    }
  }

  const std::shared_ptr<SampleCache> cache_;
  mutable std::atomic<source::FieldSet> announced_;
  const std::shared_ptr<IdleTiler> tiler_;  ///< null: images stay as they are
};

}  // namespace

std::shared_ptr<const source::Source> keep_encoded(std::shared_ptr<const source::Source> inner,
                                                   std::shared_ptr<Arena> arena) {
  auto cache = std::make_shared<SampleCache>(std::move(arena), inner->size());
  return std::make_shared<EncodedSource>(std::move(inner), std::move(cache), nullptr);
}

TiledSource keep_tiled(std::shared_ptr<const source::Source> inner, std::shared_ptr<Arena> arena) {
  auto cache = std::make_shared<SampleCache>(std::move(arena), inner->size());
  auto tiler = std::make_shared<IdleTiler>(cache, inner->size(), inner->fields());
  return {std::make_shared<EncodedSource>(std::move(inner), std::move(cache), tiler), tiler};
}

}  // namespace headrace::server::cache
