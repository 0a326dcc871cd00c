#include "server/io/read_ahead.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "clientlib/ring/futex.h"

namespace headrace::server::io {
namespace {

constexpr std::size_t kPageBytes = 4096;

bool owns(const source::Item& item) {
  return !item.bytes.empty() && item.bytes.data() == item.storage.data();
}

std::uint64_t memory_of(const source::Sample& sample) {
  std::uint64_t sum = 0;
  for (const source::Item& item : sample.items) sum += item.storage.capacity();
  return sum;
}

/// Brings a memory-mapped sample into memory by touching each of its pages.
void touch(const source::Sample& sample) {
  for (const source::Item& item : sample.items) {
    if (owns(item) || item.bytes.empty()) continue;
    const volatile std::uint8_t* const bytes = item.bytes.data();
    for (std::size_t at = 0; at < item.bytes.size(); at += kPageBytes) static_cast<void>(bytes[at]);
    static_cast<void>(bytes[item.bytes.size() - 1]);
  }
}

void copy(const source::Sample& from, source::Sample& to) {
  to.items.resize(from.items.size());
  for (std::size_t i = 0; i < from.items.size(); ++i) {
    const source::Item& item = from.items[i];
    to.items[i].pixels = item.pixels;
    if (owns(item)) {
      to.items[i].own(item.bytes.size());
      std::copy(item.bytes.begin(), item.bytes.end(), to.items[i].storage.begin());
    } else {
      to.items[i].bytes = item.bytes;
    }
  }
}

}  // namespace

ReadAhead::ReadAhead(std::shared_ptr<ReadPool> pool, std::shared_ptr<const source::Source> source,
                     const Options& options)
    : pool_(std::move(pool)), source_(std::move(source)), options_(options) {
  const std::scoped_lock lock(pool_->mutex());
  pool_->add(*this);
}

ReadAhead::~ReadAhead() {
  std::unique_lock lock(pool_->mutex());
  pool_->remove(*this);
  drop_all();
  ++waiting_;
  read_done_.wait(lock, [this] { return reading_.empty(); });
}

void ReadAhead::start() {
  const std::scoped_lock lock(pool_->mutex());
  pool_->start();
}

void ReadAhead::expect(std::span<const std::uint64_t> indices, Urgency urgency) {
  const std::scoped_lock lock(pool_->mutex());
  auto before = urgency == Urgency::kNext ? first_unrequested() : queued_.end();
  for (const std::uint64_t index : indices) {
    if (const auto found = entries_.find(index); found != entries_.end()) {
      ++found->second->expected;
      continue;
    }
    if (entries_.size() >= options_.samples && !drop_oldest()) {
      // Nothing is read yet: an urgent sample replaces the last one of the queue.
      if (before == queued_.end()) break;
      const Iterator last = std::prev(queued_.end());
      if (before == last) before = queued_.end();
      ++counts_.dropped;
      drop(last);
    }
    queued_.splice(before, spare_, take_spare(index));
  }
  if (!queued_.empty() && !pool_->notify()) drop_all();
}

ReadAhead::Iterator ReadAhead::first_unrequested() {
  return std::find_if(queued_.begin(), queued_.end(), [](const Entry& entry) { return !entry.requested; });
}

ReadAhead::Iterator ReadAhead::take_spare(std::uint64_t index) {
  if (spare_.empty()) spare_.emplace_back();
  // The last one was used last: its storage is warm in the CPU cache.
  const Iterator entry = std::prev(spare_.end());
  entry->index = index;
  entry->state = State::kQueued;
  entry->expected = 1;
  if (entry->node.empty()) {
    entries_.emplace(index, entry);
  } else {
    entry->node.key() = index;
    entry->node.mapped() = entry;
    entries_.insert(std::move(entry->node));
  }
  expects_.store(true, std::memory_order_relaxed);
  return entry;
}

void ReadAhead::forget(std::span<const std::uint64_t> indices) {
  if (!expects_.load(std::memory_order_relaxed)) return;  // the caller knows whether it expected these
  const std::scoped_lock lock(pool_->mutex());
  for (const std::uint64_t index : indices)
    if (const auto found = entries_.find(index); found != entries_.end()) unexpect(found->second);
  if (!queued_.empty()) pool_->notify();  // there is room again
}

void ReadAhead::clear() {
  const std::scoped_lock lock(pool_->mutex());
  drop_all();
}

void ReadAhead::unexpect(Iterator entry) {
  if (entry->expected > 0) --entry->expected;
  if (entry->expected == 0 && entry->state != State::kReading && entry->waiting == 0) drop(entry);
}

void ReadAhead::drop_all() {
  while (!queued_.empty()) drop(queued_.begin());
  for (Entry& entry : reading_) entry.expected = 0;
  for (Iterator entry = read_.begin(); entry != read_.end();) {
    entry->expected = 1;
    unexpect(entry++);
  }
}

bool ReadAhead::drop_oldest() {
  const Iterator oldest =
      std::find_if(read_.begin(), read_.end(), [](const Entry& entry) { return entry.waiting == 0; });
  if (oldest == read_.end()) return false;
  ++counts_.dropped;
  drop(oldest);
  return true;
}

void ReadAhead::drop(Iterator entry) {
  std::list<Entry>& from = entry->state == State::kQueued    ? queued_
                           : entry->state == State::kReading ? reading_
                                                             : read_;
  if (entry->state == State::kQueued) spare_bytes_ -= entry->memory;
  if (entry->state == State::kRead) held_bytes_ -= entry->memory;
  entry->memory = memory_of(entry->sample);
  if (held_bytes_ + spare_bytes_ + entry->memory > options_.bytes) {
    entry->sample = {};
    entry->memory = 0;
  }
  spare_bytes_ += entry->memory;
  // There is nothing to wait for any more.
  if (entry->requested && entry->state == State::kQueued) ring_bell();
  entry->state = State::kSpare;
  entry->requested = false;
  entry->expected = 0;
  entry->error.reset();
  entry->exception = nullptr;
  entry->node = entries_.extract(entry->index);
  expects_.store(!entries_.empty(), std::memory_order_relaxed);
  spare_.splice(spare_.end(), from, entry);
}

bool ReadAhead::may_begin() const {
  if (queued_.empty()) return false;
  return queued_.front().requested || held_bytes_ + (reading_.size() + 1) * mean_bytes_ <= options_.bytes ||
         (reading_.empty() && read_.empty());
}

bool ReadAhead::read_one(std::unique_lock<std::mutex>& lock) {
  if (!may_begin()) return false;
  const Iterator entry = queued_.begin();
  reading_.splice(reading_.end(), queued_, entry);
  entry->state = State::kReading;
  entry->since_ns = ring::monotonic_ns();
  spare_bytes_ -= entry->memory;
  if (may_begin()) pool_->notify();
  lock.unlock();
  try {
    if (auto read = source_->read(entry->index, entry->sample); !read) entry->error = std::move(read.error());
    if (!entry->error) touch(entry->sample);
  } catch (...) {  // the reader meets the same error
    entry->exception = std::current_exception();
  }
  lock.lock();
  finish_read(entry);
  return true;
}

void ReadAhead::finish_read(Iterator entry) {
  ++counts_.reads;
  counts_.read_ns += ring::monotonic_ns() - entry->since_ns;
  if (entry->expected == 0 && entry->waiting == 0) {
    drop(entry);
  } else {
    entry->state = State::kRead;
    entry->memory = memory_of(entry->sample);
    held_bytes_ += entry->memory;
    mean_bytes_ = mean_bytes_ == 0 ? entry->memory : (7 * mean_bytes_ + entry->memory) / 8;
    read_.splice(read_.end(), reading_, entry);
    if (entry->requested) ring_bell();
  }
  if (waiting_ > 0) read_done_.notify_all();
}

void ReadAhead::ring_when_ready(ring::UniqueFd bell) {
  const std::scoped_lock lock(pool_->mutex());
  bell_ = std::move(bell);
}

void ReadAhead::ring_bell() const {
  const std::uint64_t one = 1;
  // A full counter is a bell that has been rung already.
  if (bell_) (void)!::write(bell_.get(), &one, sizeof one);
}

bool ReadAhead::ready(std::span<const std::uint64_t> indices) {
  const std::scoped_lock lock(pool_->mutex());
  bool all = true;
  // After what others asked for, so that the last to ask cannot starve the first.
  std::optional<Iterator> before;
  for (const std::uint64_t index : indices) {
    const auto found = entries_.find(index);
    if (found == entries_.end() || found->second->state == State::kRead) continue;
    const Iterator entry = found->second;
    if (entry->state == State::kReading) {
      const auto age = std::chrono::nanoseconds(ring::monotonic_ns() - entry->since_ns);
      if (age > options_.patience) continue;  // read() reports it
    } else if (!entry->requested) {
      if (!before) before = first_unrequested();
      if (*before == entry) {
        ++*before;
      } else {
        queued_.splice(*before, queued_, entry);
      }
    }
    entry->requested = true;
    all = false;
  }
  if (!all && !queued_.empty() && queued_.front().requested && !pool_->notify()) drop_all();
  return all;
}

bool ReadAhead::wait_for(Iterator entry, std::unique_lock<std::mutex>& lock) {
  entry->requested = true;
  ++entry->waiting;
  ++waiting_;
  const auto age = std::chrono::nanoseconds(ring::monotonic_ns() - entry->since_ns);
  const bool there = read_done_.wait_for(lock, std::max(options_.patience - age, std::chrono::nanoseconds(0)),
                                         [&] { return entry->state == State::kRead; });
  --waiting_;
  --entry->waiting;
  return there;
}

Result<void> ReadAhead::read(std::uint64_t index, source::Sample& out) {
  std::unique_lock lock(pool_->mutex());
  const auto found = entries_.find(index);
  if (found == entries_.end() || found->second->state == State::kQueued) {
    ++counts_.misses;
    if (found != entries_.end()) unexpect(found->second);
    lock.unlock();
    return source_->read(index, out);
  }
  const Iterator entry = found->second;
  if (entry->state == State::kReading && !wait_for(entry, lock)) {
    unexpect(entry);
    return fail(
        ErrorCode::kTransientIo,
        fmt::format("{}: a read has not returned for {} s; check its disk or mount", source_->name(index),
                    std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count()));
  }
  auto taken = take(entry, out);
  if (!queued_.empty()) pool_->notify();  // there is room again
  return taken;
}

Result<void> ReadAhead::take(Iterator entry, source::Sample& out) {
  ++(entry->requested ? counts_.waits : counts_.hits);
  if (entry->expected > 0) --entry->expected;
  const bool last = entry->expected == 0 && entry->waiting == 0;
  const std::exception_ptr exception = entry->exception;
  std::optional<Error> error = entry->error;
  if (!exception && !error) {
    if (last) {
      std::swap(out, entry->sample);
    } else {
      copy(entry->sample, out);
    }
  }
  if (last) drop(entry);
  if (exception) std::rethrow_exception(exception);
  if (error) return fail(std::move(*error));
  return {};
}

ReadAhead::Counts ReadAhead::counts() const {
  const std::scoped_lock lock(pool_->mutex());
  Counts now = counts_;
  now.queued = queued_.size();
  now.reading = reading_.size();
  now.read_samples = read_.size();
  now.read_bytes = held_bytes_;
  now.threads = pool_->threads();
  if (!reading_.empty()) now.oldest_ns = ring::monotonic_ns() - reading_.front().since_ns;
  return now;
}

}  // namespace headrace::server::io
