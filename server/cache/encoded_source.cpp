#include "server/cache/encoded_source.h"

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
    SampleCache::Found found = cache_->lookup(index);
    if (!found.pieces.empty()) {
      give(index, found.pieces, out);
      return {};
    }
    auto done = ForwardingSource::read(index, out);
    if (!done || !found.claim) return done;
    std::vector<Piece> pieces;
    pieces.reserve(fields().size());
    for (std::size_t i = 0; i < fields().size(); ++i)
      pieces.push_back({out.items[i].bytes, out.items[i].pixels, {}});
    if (!tiler_) {
      std::move(*found.claim).admit(pieces);
    } else if (const auto room = tiler_->room_for(pieces); std::move(*found.claim).admit(pieces, room)) {
      tiler_->admitted(index, room);
    }
    return {};
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
