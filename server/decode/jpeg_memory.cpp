#include "server/decode/jpeg_memory.h"

#include <jerror.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/decode/grow.h"

namespace headrace::server::decode {
namespace {

/// Twice libjpeg-turbo's ALIGN_SIZE, to which its rows are padded.
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirst = std::size_t{64} << 10;
/// Memory beyond this (for images thousands of pixels wide) is freed after each image, so that no worker
/// keeps it.
constexpr std::size_t kKept = std::size_t{16} << 20;
/// libjpeg's own limit.
constexpr std::size_t kMost = 1'000'000'000;

constexpr std::size_t padded(std::size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

JpegMemory& of(j_common_ptr info) {
  return *static_cast<JpegMemory*>(info->client_data);
}

}  // namespace

void JpegMemory::attach(jpeg_decompress_struct& info) {
  free_pool_ = info.mem->free_pool;
  info.mem->alloc_small = [](j_common_ptr common, int, std::size_t size) { return alloc(common, size); };
  info.mem->alloc_large = [](j_common_ptr common, int, std::size_t size) { return alloc(common, size); };
  info.mem->alloc_sarray = [](j_common_ptr common, int, JDIMENSION width, JDIMENSION count) {
    return rows<JSAMPROW>(common, std::size_t{width} * sizeof(JSAMPLE), count);
  };
  info.mem->alloc_barray = [](j_common_ptr common, int, JDIMENSION width, JDIMENSION count) {
    return rows<JBLOCKROW>(common, std::size_t{width} * sizeof(JBLOCK), count);
  };
  info.mem->free_pool = [](j_common_ptr common, int pool) {
    of(common).free_pool_(common, pool);
    if (pool == JPOOL_IMAGE) of(common).give_back();
  };
}

void JpegMemory::forget_tables(jpeg_decompress_struct& info) {
  std::fill(std::begin(info.quant_tbl_ptrs), std::end(info.quant_tbl_ptrs), nullptr);
  std::fill(std::begin(info.dc_huff_tbl_ptrs), std::end(info.dc_huff_tbl_ptrs), nullptr);
  std::fill(std::begin(info.ac_huff_tbl_ptrs), std::end(info.ac_huff_tbl_ptrs), nullptr);
}

void* JpegMemory::alloc(j_common_ptr info, std::size_t size) {
  void* const memory = size <= kMost ? of(info).take(padded(size)) : nullptr;
  if (memory == nullptr) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);  // does not return
  return memory;
}

template <class Row>
Row* JpegMemory::rows(j_common_ptr info, std::size_t width, std::size_t count) {
  const std::size_t stride = padded(width);
  if (count > 0 && stride > kMost / count) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
  auto* const out = static_cast<Row*>(alloc(info, count * sizeof(Row)));
  auto* const memory = static_cast<std::byte*>(alloc(info, count * stride));
  for (std::size_t i = 0; i < count; ++i) out[i] = reinterpret_cast<Row>(memory + i * stride);
  return out;
}

void* JpegMemory::take(std::size_t size) {
  if (count_ == 0 || blocks_[count_ - 1].size - used_ < size)
    if (!add(std::max(size, count_ == 0 ? kFirst : 2 * blocks_[count_ - 1].size))) return nullptr;
  std::byte* const memory = blocks_[count_ - 1].bytes.get() + used_;
  used_ += size;
  mark_undefined(memory, size);
  return memory;
}

bool JpegMemory::add(std::size_t size) {
  if (count_ == blocks_.size()) return false;
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): nothing may throw through libjpeg's frames
  Block block{{static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)), {}}, size};
  if (!block.bytes) return false;
  blocks_[count_++] = std::move(block);
  used_ = 0;
  return true;
}

void JpegMemory::give_back() {
  used_ = 0;
  std::size_t all = 0;
  for (std::size_t i = 0; i < count_; ++i) all += blocks_[i].size;
  if (count_ == 1 && all <= kKept) return;
  // Replace several blocks by one for the next image of this size.
  while (count_ > 0) blocks_[--count_] = {};
  if (all > 0 && all <= kKept) add(all);
}

}  // namespace headrace::server::decode
