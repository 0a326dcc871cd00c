#include "server/io/disk_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "server/store/record.h"

namespace headrace::server::io {
namespace {

constexpr std::size_t kKept = std::size_t{16} << 20;

/// Per thread. A large buffer is freed after use, because there are many threads.
struct Buffers {
  std::vector<std::uint8_t> record, scratch;
  std::vector<store::RecordField> fields;

  void shrink() {
    if (record.capacity() > kKept) record = {};
    if (scratch.capacity() > kKept) scratch = {};
  }
};
thread_local Buffers buffers;

}  // namespace

DiskCache::DiskCache(std::shared_ptr<const source::Source> real, std::shared_ptr<CacheFolder> folder)
    : ForwardingSource(std::move(real)),
      folder_(std::move(folder)),
      fingerprint_(ForwardingSource::fingerprint()) {}

Result<void> DiskCache::read_fields(std::uint64_t index, source::FieldSet wanted, source::Sample& out) const {
  char file[64];
  *fmt::format_to_n(file, sizeof file - 1, "{:016x}/{:02x}/{:x}", fingerprint_, index & 0xFF, index).out =
      '\0';
  const Found found = load(file, index, out);
  const auto count = [](std::atomic<std::uint64_t>& of) { of.fetch_add(1, std::memory_order_relaxed); };
  count(found == Found::kGood ? hits_ : misses_);
  if (found == Found::kBad) count(damaged_);
  if (found == Found::kGood) return {};
  if (auto read = real().read(index, out); !read)
    return wanted.has_all(fields().size()) ? read : real().read_fields(index, wanted, out);
  encode(index, out);
  if (const auto lost = fault()) return fail(*lost);
  if (found == Found::kBad) folder_->replace(file, buffers.record);
  if (found == Found::kNone) folder_->add(file, buffers.record);
  buffers.shrink();
  return {};
}

DiskCache::Counts DiskCache::counts() const {
  return {.hits = hits_.load(std::memory_order_relaxed),
          .misses = misses_.load(std::memory_order_relaxed),
          .damaged = damaged_.load(std::memory_order_relaxed),
          .write_errors = folder_->write_errors(),
          .bytes = folder_->used(),
          .budget = folder_->budget(),
          .full = folder_->closed()};
}

DiskCache::Found DiskCache::load(const char* file, std::uint64_t index, source::Sample& out) const {
  const auto there = folder_->read(file, buffers.record);
  if (there == CacheFolder::Found::kNone) return Found::kNone;
  if (there == CacheFolder::Found::kRefused) return Found::kRefused;
  if (there == CacheFolder::Found::kUnreadable) return Found::kBad;
  const auto record = store::RecordView::of(buffers.record, index, fields().size());
  bool sound = record && record->sound() && record->name() == name(index);
  for (std::size_t f = 0; sound && f < fields().size(); ++f) {
    source::Item& item = out.item(f);
    sound = record->unpack(f, item);
    if (item.bytes.data() == item.storage.data()) continue;
    const auto bytes = item.bytes;
    item.own(bytes.size());
    std::copy(bytes.begin(), bytes.end(), item.storage.begin());
  }
  buffers.shrink();
  return sound ? Found::kGood : Found::kBad;
}

void DiskCache::encode(std::uint64_t index, const source::Sample& sample) const {
  buffers.fields.clear();
  for (std::size_t f = 0; f < fields().size(); ++f) {
    const source::Item& item = sample.items.at(f);
    buffers.fields.push_back({.bytes = item.bytes});
    if (fields()[f].content == source::Content::kPixels) buffers.fields.back().pixels = item.pixels;
  }
  const std::string own_name = name(index);
  store::encode({.index = index,
                 .label = label(index),
                 .name = own_name,
                 .unreadable = false,
                 .fields = buffers.fields},
                store::Compression::kNone, buffers.scratch, buffers.record);
}

}  // namespace headrace::server::io
