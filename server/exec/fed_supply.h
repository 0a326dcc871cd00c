// Batches that are fed from outside while they are served, each of them once (source/formats/feed.h).
//
// No batch can be built twice. A lane therefore holds every batch from its first one on, as soon as it is
// opened: the ledger's `on_lag: wait` keeps a batch until each open lane was granted it. A new lane begins at
// the hindmost lane's next batch; without other lanes, at the first batch that has not been built.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/exec/supply.h"
#include "server/source/formats/feed.h"

namespace headrace::server::exec {

class FedSupply final : public Supply {
 public:
  /// `stream`: the stream's name, for messages.
  FedSupply(std::string stream, std::uint32_t batch_size, std::shared_ptr<source::Feed> feed);

  [[nodiscard]] std::optional<publish::Position> end() const override;
  [[nodiscard]] bool builds_once() const override { return true; }
  [[nodiscard]] Result<void> may_join(const wire::OpenRequest& request,
                                      const std::optional<Cursor>& hindmost) const override;
  [[nodiscard]] Cursor oldest(const std::optional<Cursor>& hindmost) const override;
  /// kInvalidArgument. A client skips batches by releasing them instead.
  [[nodiscard]] Result<void> may_seek() const override;
  [[nodiscard]] bool exhausted(const Cursor& next) const override;
  [[nodiscard]] Error end_error() const override;
  [[nodiscard]] bool ended_early() const override { return ended_ && !ended_->done; }
  void started(const Cursor& batch) override;
  void completed(const Cursor& batch) override;

  /// No further batches come: clients get the existing ones, then kStreamFailed with `why`. `done`: the
  /// feeder sent all that it had. Only the first call has an effect.
  void finish(std::string why, bool done);
  /// After finish(): every batch was built.
  [[nodiscard]] bool all_built() const { return ended_ && built_ >= ended_->batches; }

 private:
  [[nodiscard]] std::uint64_t number(const Cursor& cursor) const;  ///< counted through all epochs
  [[nodiscard]] Cursor cursor_of(std::uint64_t number) const;

  struct End {
    std::uint64_t batches = 0;
    std::string why;
    bool done = false;
  };

  const std::string stream_;
  const std::uint32_t batch_size_;
  const std::shared_ptr<source::Feed> feed_;
  std::optional<End> ended_;
  std::uint64_t built_ = 0;  ///< batches before this number have been built
};

}  // namespace headrace::server::exec
