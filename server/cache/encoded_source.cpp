#include "server/cache/encoded_source.h"

#include <utility>

#include "server/cache/sample_cache.h"

namespace headrace::server::cache {
namespace {

using source::Item;
using source::Sample;

class EncodedSource final : public source::Source {
 public:
  EncodedSource(std::shared_ptr<const source::Source> inner, std::shared_ptr<Arena> arena)
      : inner_(std::move(inner)), cache_(std::move(arena), inner_->size()) {}

  Result<void> read(std::uint64_t index, Sample& out) const override {
    SampleCache::Found found = cache_.look(index);
    for (std::size_t i = 0; i < found.pieces.size(); ++i) {
      Item& item = out.item(i);
      item.bytes = found.pieces[i].bytes;
      item.pixels = found.pieces[i].pixels;
    }
    if (!found.pieces.empty()) return {};
    auto done = inner_->read(index, out);
    if (!done || !found.claim) return done;
    std::vector<Piece> pieces;
    pieces.reserve(fields().size());
    for (std::size_t i = 0; i < fields().size(); ++i)
      pieces.push_back({out.items[i].bytes, out.items[i].pixels, {}});
    std::move(*found.claim).admit(pieces);
    return {};
  }

  [[nodiscard]] std::uint64_t size() const override { return inner_->size(); }
  [[nodiscard]] const std::vector<source::SourceField>& fields() const override { return inner_->fields(); }
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override {
    return inner_->whole_index(index);
  }
  [[nodiscard]] bool labelled() const override { return inner_->labelled(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return inner_->label(index); }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    return inner_->most_values(field, rows);
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override { return inner_->name(index); }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return inner_->class_names(); }
  [[nodiscard]] std::uint64_t fingerprint() const override { return inner_->fingerprint(); }
  [[nodiscard]] std::string warning() const override { return inner_->warning(); }

 private:
  const std::shared_ptr<const source::Source> inner_;
  mutable SampleCache cache_;  // read() is const for callers: the same bytes, sooner
};

}  // namespace

std::shared_ptr<const source::Source> keep_encoded(std::shared_ptr<const source::Source> inner,
                                                   std::shared_ptr<Arena> arena) {
  return std::make_shared<EncodedSource>(std::move(inner), std::move(arena));
}

}  // namespace headrace::server::cache
