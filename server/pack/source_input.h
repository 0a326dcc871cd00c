// Packs a source of the server.
#pragma once

#include "server/pack/input.h"

namespace headrace::server::pack {

class SourceInput final : public Input {
 public:
  /// The source must outlive this object.
  explicit SourceInput(const source::Source& source);

  [[nodiscard]] const store::Meta& meta() const override { return meta_; }
  /// Errors: the source's.
  Result<bool> read(std::uint64_t index, InputSample& out) override;
  [[nodiscard]] std::optional<Error> fault() const override { return source_.fault(); }
  [[nodiscard]] store::Writer::Tables tables() const override;

 private:
  const source::Source& source_;
  store::Meta meta_;
};

}  // namespace headrace::server::pack
