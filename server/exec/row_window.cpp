#include "server/exec/row_window.h"

#include <algorithm>
#include <new>
#include <utility>

namespace headrace::server::exec {
namespace {

/// Rows that are dropped in one go: find() drops few, so that it does not take long.
constexpr std::size_t kDroppedByFind = 4, kDroppedByTrim = 64;
/// Blocks without a row that trim() leaves for the next rows.
constexpr std::size_t kSpareBlocks = 64;
/// Bytes that a row costs beside its own: its entry in the map, its pointers, and the allocator's headers.
constexpr std::size_t kBeside = 160;

}  // namespace

RowWindow::RowWindow(std::uint64_t budget, std::size_t row_bytes, std::uint64_t positions,
                     std::uint32_t streams, std::chrono::nanoseconds patience)
    : budget_(budget),
      row_bytes_(row_bytes),
      cost_(row_bytes + kBeside),
      positions_(positions),
      most_(budget / cost_),
      reader_count_(std::size_t{streams} * kLanes),
      patience_(patience),
      readers_(std::make_unique<std::atomic<std::uint64_t>[]>(reader_count_)) {
  for (std::size_t i = 0; i < reader_count_; ++i) readers_[i].store(kNone, std::memory_order_relaxed);
}

std::optional<std::uint64_t> RowWindow::number(std::uint64_t epoch, std::uint64_t position) const {
  if (epoch >= kNone / positions_ - 1) return std::nullopt;
  return epoch * positions_ + position;
}

void RowWindow::move(std::uint32_t stream, std::uint32_t lane, std::optional<std::uint64_t> next) {
  readers_[std::size_t{stream} * kLanes + lane].store(next.value_or(kNone), std::memory_order_relaxed);
}

std::optional<std::uint64_t> RowWindow::foremost() const {
  return foremost_except(std::numeric_limits<std::size_t>::max());
}

std::optional<publish::Position> RowWindow::foremost_in_other_streams(std::uint32_t stream) const {
  const auto row = foremost_except(stream);
  if (!row) return std::nullopt;
  return publish::Position{*row / positions_, *row % positions_};
}

std::optional<std::uint64_t> RowWindow::foremost_except(std::size_t stream) const {
  std::optional<std::uint64_t> foremost;
  for (std::size_t i = 0; i < reader_count_; ++i)
    if (const std::uint64_t reader = at(i); reader != kNone && i / kLanes != stream)
      foremost = std::max(foremost.value_or(0), reader);
  return foremost;
}

bool RowWindow::needed_by_others(std::uint64_t row, const Lanes& served) const {
  for (std::size_t i = 0; i < reader_count_; ++i)
    if (at(i) <= row && !is_among(i, served)) return true;
  return false;
}

void RowWindow::begins_late(std::uint64_t row) {
  const std::scoped_lock lock(mutex_);
  rearmost();
  const std::uint64_t ahead = std::max(row, foremost().value_or(row)) - row;
  const std::uint64_t from = expected_from_.load(std::memory_order_relaxed);
  const std::uint64_t end = row + 2 * std::min(ahead, positions_);
  expected_end_.store(from == kNone ? end : std::max(end, expected_end_.load(std::memory_order_relaxed)),
                      std::memory_order_relaxed);
  expected_from_.store(std::min(row, from), std::memory_order_relaxed);
  // At once, so that no other row takes the place of one that this reader needs.
  while (take_back(row)) {
  }
  count();
}

bool RowWindow::take_back(std::uint64_t reader) {
  if (passed_rows_.empty() || std::prev(passed_rows_.end())->first < reader) return false;
  rows_.insert(rows_.begin(), passed_rows_.extract(std::prev(passed_rows_.end())));
  return true;
}

RowWindow::Rearmost RowWindow::rearmost() {
  Rearmost found;
  for (std::size_t i = 0; i < reader_count_; ++i) {
    const std::uint64_t reader = at(i);
    found.row = std::min(found.row, reader);
    found.readers += reader != kNone;
  }
  if (found.readers < 2 || found.row >= expected_end_.load(std::memory_order_relaxed))
    expected_from_.store(kNone, std::memory_order_relaxed);
  return found;
}

const RowWindow::Entry* RowWindow::entry_of(std::uint64_t row) const {
  for (const Rows* const rows : {&rows_, &passed_rows_})
    if (const auto found = rows->find(row); found != rows->end()) return &found->second;
  return nullptr;
}

RowWindow::Found RowWindow::find(std::uint64_t row, const std::optional<Lanes>& keep_unless, bool wait) {
  std::unique_lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  for (;;) {
    const Entry* const entry = entry_of(row);
    if (entry == nullptr) break;
    if (entry->ready) return {.row = Held(*this, entry->row), .claim = {}};
    if (!wait) return {.row = {}, .claim = {}, .busy = true};
    ++waiting_;
    const bool late = settled_.wait_until(lock, deadline) == std::cv_status::timeout;
    --waiting_;
    if (late) return {};
  }
  if (!keep_unless) return {};
  drop_passed(kDroppedByFind);
  const bool full = rows_.size() + passed_rows_.size() >= most_;
  // Nothing is dropped for readers that may never begin.
  if (full && may_be_needed(row) && !needed_by_others(row, *keep_unless)) return {};
  try {
    if (!full || make_room(row, *keep_unless)) {
      std::shared_ptr<Row> memory = take_memory();
      rows_.emplace(row, Entry{memory});
      count();
      return {.row = {}, .claim = Claim(*this, row, std::move(memory))};
    }
  } catch (const std::bad_alloc&) {  // then it is not kept
  }
  refused_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

bool RowWindow::make_room(std::uint64_t row, const Lanes& served) {
  if (!passed_rows_.empty()) {
    const auto last = std::prev(passed_rows_.end());
    if (needed_by_others(row, served) && !needed_by_others(last->first, {})) {
      erase(passed_rows_, last);
      return true;
    }
  }
  std::vector<std::uint64_t> all, others;
  for (std::size_t i = 0; i < reader_count_; ++i) {
    const std::uint64_t reader = at(i);
    if (reader == kNone) continue;
    all.push_back(reader);
    if (!is_among(i, served)) others.push_back(reader);
  }
  std::sort(all.begin(), all.end());
  std::sort(others.begin(), others.end());
  const auto distance = [](const std::vector<std::uint64_t>& readers, std::uint64_t of) {
    const auto next = std::upper_bound(readers.begin(), readers.end(), of);
    return next == readers.begin() ? kNone : of - *std::prev(next);
  };
  // Between two readers, the row that is needed last is the one before the second reader.
  std::uint64_t farthest = distance(others, row);
  auto victim = rows_.end();
  const auto consider = [&](Rows::iterator after) {
    while (after != rows_.begin() && !std::prev(after)->second.ready) --after;
    if (after == rows_.begin()) return;
    const std::uint64_t far = distance(all, std::prev(after)->first);
    if (far <= farthest) return;
    farthest = far;
    victim = std::prev(after);
  };
  consider(rows_.end());
  for (const std::uint64_t reader : all) consider(rows_.lower_bound(reader));
  if (victim == rows_.end()) return false;
  erase(rows_, victim);
  return true;
}

bool RowWindow::has(std::uint64_t row) const {
  const std::scoped_lock lock(mutex_);
  const Entry* const entry = entry_of(row);
  return entry != nullptr && entry->ready;
}

void RowWindow::erase(Rows& rows, Rows::iterator entry) {
  // A reader that still copies the row keeps its memory.
  try {
    if (entry->second.row.use_count() == 1) free_.push_back(std::move(entry->second.row->bytes));
  } catch (const std::bad_alloc&) {  // then its memory is not used again
  }
  rows.erase(entry);
  count();
}

bool RowWindow::drop_passed(std::size_t most) {
  const std::uint64_t first = rearmost().row;
  bool more = true;
  for (; more && most > 0; --most) {
    if (take_back(first)) continue;
    if (!passed_rows_.empty() && !may_be_needed(std::prev(passed_rows_.end())->first)) {
      erase(passed_rows_, std::prev(passed_rows_.end()));
    } else if (!passed_rows_.empty() && !may_be_needed(passed_rows_.begin()->first)) {
      erase(passed_rows_, passed_rows_.begin());
    } else if (rows_.empty() || !rows_.begin()->second.ready || rows_.begin()->first >= first) {
      more = false;
    } else if (may_be_needed(rows_.begin()->first)) {
      passed_rows_.insert(rows_.extract(rows_.begin()));
    } else {
      erase(rows_, rows_.begin());
    }
  }
  count();
  return more;
}

std::shared_ptr<RowWindow::Row> RowWindow::take_memory() {
  auto row = std::make_shared<Row>();
  if (free_.empty()) {
    row->bytes = std::make_unique_for_overwrite<std::byte[]>(row_bytes_);
  } else {
    row->bytes = std::move(free_.back());
    free_.pop_back();
  }
  return row;
}

void RowWindow::settle(std::uint64_t number, bool ready) {
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    const auto entry = rows_.find(number);
    if (ready) {
      entry->second.ready = true;
    } else {
      erase(rows_, entry);
    }
    wake = waiting_ > 0;
  }
  if (wake) settled_.notify_all();
}

void RowWindow::count() {
  kept_.store(rows_.size() + passed_rows_.size(), std::memory_order_relaxed);
  needed_.store(rows_.size(), std::memory_order_relaxed);
  blocks_.store(rows_.size() + passed_rows_.size() + free_.size(), std::memory_order_relaxed);
}

void RowWindow::trim(std::chrono::nanoseconds longest) {
  const auto begin = std::chrono::steady_clock::now();
  bool more = true;
  do {
    std::vector<Memory> freed;  // freed without the mutex
    const std::scoped_lock lock(mutex_);
    more = drop_passed(kDroppedByTrim);
    const std::size_t spare = rows_.empty() && passed_rows_.empty() ? 0 : kSpareBlocks;
    for (std::size_t i = 0; i < kDroppedByTrim && free_.size() > spare; ++i) {
      freed.push_back(std::move(free_.back()));
      free_.pop_back();
    }
    more = more || free_.size() > spare;
    count();
  } while (more && std::chrono::steady_clock::now() - begin < longest);
}

RowWindow::Held::~Held() {
  if (row_ == nullptr) return;
  // Under the mutex, so that erase() sees that the row's bytes are no longer read.
  const std::scoped_lock lock(window_->mutex_);
  row_.reset();
}

RowWindow::Claim::Claim(RowWindow& window, std::uint64_t number, std::shared_ptr<Row> row)
    : window_(&window), number_(number), row_(std::move(row)) {}

RowWindow::Claim::Claim(Claim&& other) noexcept
    : window_(std::exchange(other.window_, nullptr)), number_(other.number_), row_(std::move(other.row_)) {}

RowWindow::Claim::~Claim() {
  if (window_ != nullptr) window_->settle(number_, false);
}

void RowWindow::Claim::done(std::uint64_t sample_index, std::int64_t label) && {
  row_->sample_index = sample_index;
  row_->label = label;
  std::exchange(window_, nullptr)->settle(number_, true);
}

}  // namespace headrace::server::exec
