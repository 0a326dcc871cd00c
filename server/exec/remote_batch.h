// A batch that another process makes for this server. It is ordered when its slot is taken; workers copy its
// rows into the slot straight from that process's memory. Rows are a pure function of their position, so
// workers may make them here at any time instead: an order that is late, lost or refused costs no more than
// time.
//
// Thread safety: any thread may call any member.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "clientlib/base/unique_fd.h"
#include "headrace/error.h"
#include "server/sampler/order.h"

namespace headrace::server::exec {

/// The memory of another process of this user.
class ProcessMemory {
 public:
  /// `connection`: a socket to that process, which keeps its memory until either side shuts the socket down.
  /// kEnvironment: there is no such process.
  static Result<std::shared_ptr<const ProcessMemory>> open(pid_t pid, int connection);
  /// Copies `from` there to `to` here, of the same total size. False: the connection or the process has
  /// ended, the system does not allow it, or there is no such memory; then `to` has unspecified content.
  [[nodiscard]] bool read(std::span<const iovec> to, std::span<const iovec> from) const;

 private:
  ProcessMemory(pid_t pid, UniqueFd process, UniqueFd connection)
      : pid_(pid), process_(std::move(process)), connection_(std::move(connection)) {}
  const pid_t pid_;
  const UniqueFd process_, connection_;
};

/// Where the rows of a batch are in another process.
struct RemoteRows {
  std::shared_ptr<const ProcessMemory> memory;
  std::vector<std::uint64_t> fields;  ///< addresses of the first row, in the order of SampleMaker::fields()
  std::uint64_t samples = 0;          ///< address of each row's Source::whole_index(): uint64
  std::uint64_t replaced = 0;  ///< address of one byte for each row: not 0 if its sample is a replacement

  /// The place of `count` rows of `row_size` bytes, from row `first` on.
  static iovec part(std::uint64_t address, std::uint64_t first, std::uint64_t count, std::size_t row_size);
};

class RemoteBatch {
 public:
  /// Runs when the rows are not needed any more, with the number of rows that were copied; at its end, and
  /// perhaps before.
  using Release = std::function<void(std::uint32_t copied)>;
  explicit RemoteBatch(Release release) : release_(std::move(release)) {}
  ~RemoteBatch() { release_(copied_.load()); }
  RemoteBatch(const RemoteBatch&) = delete;
  RemoteBatch& operator=(const RemoteBatch&) = delete;

  /// Whether workers should wait for the rows.
  [[nodiscard]] bool awaited() const { return state_.load(std::memory_order_acquire) == State::kAwaited; }
  /// Where the rows are; null while they must be made here.
  [[nodiscard]] const RemoteRows* rows() const {
    return state_.load(std::memory_order_acquire) == State::kArrived ? &rows_ : nullptr;
  }
  /// Workers make the rows from now on, unless they have arrived. False: they did not wait any more.
  bool make_here();
  /// The same, and the order is released: rows that come later are not used.
  bool take_back();
  /// Workers copy the rows from now on. False: the order was taken back, so that its rows may be freed, or
  /// they have arrived already.
  bool arrive(RemoteRows rows);
  /// The rows cannot be read: workers make those that are missing. Rows that come again are not used, because
  /// other workers may still read where the first ones are.
  void forget_rows() { state_.store(State::kForgotten, std::memory_order_release); }
  void count_copied(std::uint32_t rows) { copied_.fetch_add(rows, std::memory_order_relaxed); }

 private:
  enum class State : std::uint8_t { kAwaited, kMadeHere, kTakenBack, kArrived, kForgotten };
  const Release release_;
  RemoteRows rows_;
  std::atomic<State> state_{State::kAwaited};
  std::atomic<std::uint32_t> copied_{0};
};

/// Takes orders for the batches of one stream. Thread safety: the engine's lock.
class RemoteOrders {
 public:
  virtual ~RemoteOrders() = default;
  [[nodiscard]] virtual bool has_room() const = 0;  ///< whether one more order may be under way now
  /// `ready`: finished batches that wait for the client that wants this one. Null: there is no
  /// room.
  virtual std::shared_ptr<RemoteBatch> order(std::uint64_t epoch, const sampler::BatchRows& rows,
                                             std::uint32_t ready) = 0;
};

}  // namespace headrace::server::exec
