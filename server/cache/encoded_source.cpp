#include "server/cache/encoded_source.h"

#include <utility>

#include "server/cache/sample_cache.h"
#include "server/source/forwarding.h"

namespace headrace::server::cache {
namespace {

using source::Item;
using source::Sample;

class EncodedSource final : public source::ForwardingSource {
 public:
  EncodedSource(std::shared_ptr<const source::Source> inner, std::shared_ptr<Arena> arena)
      : ForwardingSource(std::move(inner)), cache_(std::move(arena), size()) {}

  Result<void> read(std::uint64_t index, Sample& out) const override {
    SampleCache::Found found = cache_.look(index);
    for (std::size_t i = 0; i < found.pieces.size(); ++i) {
      Item& item = out.item(i);
      item.bytes = found.pieces[i].bytes;
      item.pixels = found.pieces[i].pixels;
    }
    if (!found.pieces.empty()) return {};
    auto done = ForwardingSource::read(index, out);
    if (!done || !found.claim) return done;
    std::vector<Piece> pieces;
    pieces.reserve(fields().size());
    for (std::size_t i = 0; i < fields().size(); ++i)
      pieces.push_back({out.items[i].bytes, out.items[i].pixels, {}});
    std::move(*found.claim).admit(pieces);
    return {};
  }

 private:
  mutable SampleCache cache_;  // read() is const for callers: the same bytes, sooner
};

}  // namespace

std::shared_ptr<const source::Source> keep_encoded(std::shared_ptr<const source::Source> inner,
                                                   std::shared_ptr<Arena> arena) {
  return std::make_shared<EncodedSource>(std::move(inner), std::move(arena));
}

}  // namespace headrace::server::cache
