// Which of a stream's batches exist, and where its clients may begin. The base class: all batches, anywhere.
// FedSupply has the rules for batches from outside. Thread safety: the engine's lock.
#pragma once

#include <optional>

#include "clientlib/wire/protocol.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "server/publish/ledger.h"

namespace headrace::server::exec {

class Supply {
 public:
  Supply() = default;
  virtual ~Supply() = default;
  Supply(const Supply&) = delete;
  Supply& operator=(const Supply&) = delete;

  /// No batch at or beyond this position exists yet. nullopt: all exist.
  [[nodiscard]] virtual std::optional<publish::Position> end() const { return std::nullopt; }
  /// Each batch can be built only once. Then a lane holds every batch from `open` on, and begins at
  /// `oldest()`.
  [[nodiscard]] virtual bool builds_once() const { return false; }
  /// Whether a client may join as it asks. `hindmost`: the next batch of the hindmost lane, if there are
  /// lanes.
  [[nodiscard]] virtual Result<void> may_join(const wire::OpenRequest& /*request*/,
                                              const std::optional<Cursor>& /*hindmost*/) const {
    return {};
  }
  /// The oldest batch that a new lane can get; only if builds_once().
  [[nodiscard]] virtual Cursor oldest(const std::optional<Cursor>& hindmost) const {
    return hindmost.value_or(Cursor{});
  }
  [[nodiscard]] virtual Result<void> may_seek() const { return {}; }
  /// Whether no batch from `next` on will ever come.
  [[nodiscard]] virtual bool exhausted(const Cursor& /*next*/) const { return false; }
  /// The error that its clients get then.
  [[nodiscard]] virtual Error end_error() const { return {}; }
  /// It ended before all batches came: clients need not wait for each other any more.
  [[nodiscard]] virtual bool ended_early() const { return false; }

  virtual void started(const Cursor& /*batch*/) {}    ///< a worker builds it
  virtual void completed(const Cursor& /*batch*/) {}  ///< its rows were read, or will not be
};

}  // namespace headrace::server::exec
