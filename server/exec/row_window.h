// Rows that were made and are kept for others who need them later: lanes that are behind, and other streams
// with the same rows. A row is kept until every reader has passed it, or until the budget is needed for rows
// that are needed sooner.
//
// People who start several jobs one after the other often start more than two. So if a reader begins n rows
// behind the foremost one, the 2n rows from its first one on are kept for readers that may begin soon, even
// those that every reader has passed, if there is room. This ends when every reader is past all 2n rows, or
// only one reader is left.
//
// A reader is a lane. It needs the rows from its position on, in order. So of two rows, the one whose next
// reader is nearer is needed sooner.
//
// Rows are numbered through all epochs: epoch * positions + position.
//
// Thread safety: any thread may call any member. move(), needed_by_others() and
// foremost_in_other_streams(), which the engine calls under its lock, take no lock; has(), which it calls
// once for each lane and batch, and begins_late() take one. One mutex guards the rows, but not their bytes;
// rows that are worth keeping take much longer to make than a call here.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "server/publish/position.h"

namespace headrace::server::exec {

class RowWindow {
 public:
  /// A finished row.
  struct Row {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t sample_index = 0;
    std::int64_t label = 0;
  };

  /// `positions`: of an epoch. `streams`: that share the rows, of up to 64 lanes each. `patience`: the
  /// longest wait for a row that another thread makes; after that the caller makes it, too.
  RowWindow(std::uint64_t budget, std::size_t row_bytes, std::uint64_t positions, std::uint32_t streams,
            std::chrono::nanoseconds patience = std::chrono::seconds(1));

  /// nullopt: the epoch is too large to be numbered, and its rows are not shared.
  [[nodiscard]] std::optional<std::uint64_t> number(std::uint64_t epoch, std::uint64_t position) const;

  // --- readers
  /// Lanes of a stream, one bit each.
  struct Lanes {
    std::uint32_t stream = 0;
    std::uint64_t lanes = 0;
  };
  /// The first row that a lane still needs; nullopt: it needs none any more.
  void move(std::uint32_t stream, std::uint32_t lane, std::optional<std::uint64_t> next);
  /// The foremost row that a reader needs next; nullopt: there are no readers.
  [[nodiscard]] std::optional<std::uint64_t> foremost() const;
  /// The position of the foremost reader in the streams other than `stream`; nullopt: they have no readers.
  [[nodiscard]] std::optional<publish::Position> foremost_in_other_streams(std::uint32_t stream) const;
  /// Whether a reader other than `served` needs this row.
  [[nodiscard]] bool needed_by_others(std::uint64_t row, const Lanes& served) const;
  /// A reader begins at `row`, behind others: more may begin there.
  void begins_late(std::uint64_t row);
  /// Whether readers that may begin soon would need this row.
  [[nodiscard]] bool may_be_needed(std::uint64_t row) const {
    return expected_from_.load(std::memory_order_relaxed) <= row &&
           row < expected_end_.load(std::memory_order_relaxed);
  }

  // --- rows
  /// The right and the duty to make a row. If it is dropped before done(), the row is not kept.
  class Claim {
   public:
    Claim(Claim&& other) noexcept;
    Claim& operator=(Claim&&) = delete;
    ~Claim();

    [[nodiscard]] std::byte* bytes() const { return row_->bytes.get(); }
    void done(std::uint64_t sample_index, std::int64_t label) &&;

   private:
    friend class RowWindow;
    Claim(RowWindow& window, std::uint64_t number, std::shared_ptr<Row> row);
    RowWindow* window_;
    std::uint64_t number_;
    std::shared_ptr<Row> row_;
  };
  /// A row that is being read, whose memory stays. It must not outlive the window.
  class Held {
   public:
    Held() = default;
    Held(Held&&) noexcept = default;
    Held& operator=(Held&&) = delete;
    ~Held();

    explicit operator bool() const { return row_ != nullptr; }
    const Row* operator->() const { return row_.get(); }

   private:
    friend class RowWindow;
    Held(RowWindow& window, std::shared_ptr<const Row> row) : window_(&window), row_(std::move(row)) {}
    RowWindow* window_ = nullptr;
    std::shared_ptr<const Row> row_;
  };
  struct Found {
    Held row;
    std::optional<Claim> claim;
    bool busy = false;  ///< another thread makes it; only if `wait` is false
    // None of the three: the caller makes the row for itself.
  };
  /// `keep_unless`: a reader other than these lanes needs the row, or may need it, so that it should be kept
  /// if it is made now; nullopt: none does. `wait`: for a thread that makes it.
  Found find(std::uint64_t row, const std::optional<Lanes>& keep_unless, bool wait);
  [[nodiscard]] bool empty() const { return kept() == 0; }

  /// Drops the rows that nobody needs or may need, and frees memory that no row uses, for about as long as
  /// given. Holds the mutex only briefly.
  void trim(std::chrono::nanoseconds longest = std::chrono::nanoseconds::max());

  [[nodiscard]] std::size_t row_bytes() const { return row_bytes_; }
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] std::uint64_t kept() const { return kept_.load(std::memory_order_relaxed); }  ///< rows
  /// Those of them that readers need.
  [[nodiscard]] std::uint64_t needed() const { return needed_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool has(std::uint64_t row) const;  ///< it is finished
  /// Rows that fit in besides those that are needed.
  [[nodiscard]] std::uint64_t room() const { return most_ - std::min(most_, needed()); }
  [[nodiscard]] std::uint64_t used() const { return blocks_.load(std::memory_order_relaxed) * cost_; }
  /// Rows that were not kept because all others are needed sooner.
  [[nodiscard]] std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::uint32_t kLanes = 64;

  struct Entry {
    std::shared_ptr<Row> row;
    bool ready = false;
  };
  using Rows = std::map<std::uint64_t, Entry>;
  using Memory = std::unique_ptr<std::byte[]>;

  [[nodiscard]] std::uint64_t at(std::size_t reader) const {
    return readers_[reader].load(std::memory_order_relaxed);
  }
  [[nodiscard]] static bool is_among(std::size_t reader, const Lanes& lanes) {
    return reader / kLanes == lanes.stream && (lanes.lanes >> (reader % kLanes) & 1) != 0;
  }
  [[nodiscard]] std::optional<std::uint64_t> foremost_except(std::size_t stream) const;
  [[nodiscard]] const Entry* entry_of(std::uint64_t row) const;  ///< [lock]
  void erase(Rows& rows, Rows::iterator entry);                  ///< [lock]
  struct Rearmost {
    std::uint64_t row = kNone;  ///< that the reader behind all others needs next
    std::size_t readers = 0;
  };
  /// [lock] Also ends the expectation of further readers, if all have passed its rows or only one is left.
  Rearmost rearmost();
  /// [lock] Moves the last of passed_rows_ to rows_ if a reader at this row needs it. False: it does not.
  bool take_back(std::uint64_t reader);
  /// [lock] Drops up to `most` of the rows that every reader has passed, or moves them to passed_rows_ if
  /// readers that may begin soon would need them; moves those back that a reader needs again. False: there
  /// are no more.
  bool drop_passed(std::size_t most);
  /// [lock] Makes room by dropping the last of passed_rows_ or, if a reader needs that, the row that is
  /// needed last, if that is later than `row`.
  bool make_room(std::uint64_t row, const Lanes& served);
  std::shared_ptr<Row> take_memory();  ///< [lock]
  void settle(std::uint64_t number, bool ready);
  void count();  ///< [lock]

  const std::uint64_t budget_;
  const std::size_t row_bytes_, cost_;    ///< of a row: its bytes, and with what it needs beside them
  const std::uint64_t positions_, most_;  ///< most rows
  const std::size_t reader_count_;        ///< kLanes for each stream
  const std::chrono::nanoseconds patience_;
  const std::unique_ptr<std::atomic<std::uint64_t>[]> readers_;  ///< kNone: no reader
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  Rows rows_;
  Rows passed_rows_;  ///< only for readers that may begin soon, except until drop_passed() moves them back
  std::vector<Memory> free_;
  std::uint32_t waiting_ = 0;
  std::atomic<std::uint64_t> kept_{0}, needed_{0}, blocks_{0}, refused_{0};
  std::atomic<std::uint64_t> expected_from_{kNone}, expected_end_{0};  ///< for readers that may begin soon
};

}  // namespace headrace::server::exec
