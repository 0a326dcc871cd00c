#include "server/decode/jpeg_entropy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
// jpegint.h needs jpeglib.h before it.
#include <jpegint.h>

#include "server/decode/huffman_table.h"

#define HEADRACE_INLINE [[gnu::always_inline]] inline

namespace headrace::server::decode {
namespace {

/// Decoding a smaller scan takes less time than making its tables.
constexpr std::size_t kSmallScan = 4 * 1024;
/// Lookups between two refills.
constexpr int kAtOnce = 4;
static_assert(kAtOnce * AcTable::kPassBits <= 56 && HuffmanTable::kLookBits <= AcTable::kPassBits);
/// The versions whose jpeg_entropy_decoder this code matches.
constexpr bool kKnownLibjpeg =
    LIBJPEG_TURBO_VERSION_NUMBER >= 2'000'000 && LIBJPEG_TURBO_VERSION_NUMBER < 3'000'000;

/// T.81, figure A.6, and 16 more entries: a run may leave the block before that is checked. libjpeg's
/// jpeg_natural_order has ints and an address that must be loaded: 3% slower.
constexpr std::array<std::uint8_t, DCTSIZE2 + 16> kNaturalOrder = [] {
  std::array<std::uint8_t, DCTSIZE2 + 16> order{};
  int x = 0, y = 0;
  for (int i = 0; i < 64; ++i) {
    order[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(8 * y + x);
    const bool up = (x + y) % 2 == 0;
    int& along = up ? x : y;
    int& across = up ? y : x;
    if (along == 7) {
      ++across;
    } else {
      ++along;
      if (across > 0) --across;
    }
  }
  for (std::size_t i = 64; i < order.size(); ++i) order[i] = 63;
  return order;
}();

std::uint64_t load_big_endian(const std::uint8_t* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return std::endian::native == std::endian::little ? __builtin_bswap64(word) : word;
}

struct Bits {
  const std::uint8_t* next = nullptr;
  const std::uint8_t* end = nullptr;
  std::uint64_t bits = 0;  ///< the next bits, from the top
  int count = 0;           ///< valid bits; below 0: more were consumed than there are

  void drop(int length) {
    bits <<= length;
    count -= length;
  }
};

/// The bits beyond `count` may be valid already, from bytes that were not counted.
Bits refilled_slowly(Bits in) {
  while (in.count >= 0 && in.count <= 56 && in.next < in.end) {
    const std::uint8_t byte = *in.next;
    if (byte == 0xFF) {
      if (in.end - in.next < 2 || in.next[1] != 0) break;  // a marker, where the bits end
      ++in.next;
    }
    ++in.next;
    in.bits |= std::uint64_t{byte} << (56 - in.count);
    in.count += 8;
  }
  return in;
}

/// Refills to at least 56 bits, or to all that remain.
HEADRACE_INLINE void refill(Bits& in) {
  if (in.end - in.next >= 8) [[likely]] {
    const std::uint64_t word = load_big_endian(in.next);
    // No byte is 0xFF, which could begin a marker or a stuffed byte.
    constexpr std::uint64_t kOnes = 0x0101010101010101, kTops = 0x8080808080808080;
    if (((~word - kOnes) & word & kTops) == 0 && in.count < 64) [[likely]] {
      in.bits |= word >> in.count;
      in.next += (63 - in.count) >> 3;
      in.count |= 56;
      return;
    }
  }
  in = refilled_slowly(in);
}

HEADRACE_INLINE bool decode_dc(Bits& in, const HuffmanTable& dc, int& predictor) {
  refill(in);
  if (const HuffmanSymbol first = dc.lookup(in.bits); first.length > 0) {
    predictor += first.value;
    in.drop(first.length);
    return true;
  }
  const auto [size, length] = dc.long_symbol(in.bits);
  if (size < 0 || size > 15) return false;
  in.drop(length);
  if (size > 0) {
    predictor += extend(in.bits, size);
    in.drop(size);
  }
  return true;
}

HEADRACE_INLINE bool decode_block(Bits& in, const HuffmanTable& dc, const AcTable& ac, int& predictor,
                                  JCOEF* block) {
  if (!decode_dc(in, dc, predictor)) return false;
  block[0] = static_cast<JCOEF>(predictor);
  for (int k = 1;;) {
    refill(in);
    // Each lookup uses at most HuffmanTable::kLookBits.
    for (int i = 0; i < kAtOnce; ++i) {
      const HuffmanSymbol next = ac.lookup(in.bits);
      if (next.length == 0) {
        if (next.run == HuffmanTable::kEnd) {
          in.drop(next.value);
          return true;
        }
        refill(in);
        const auto [symbol, length] = ac.long_symbol(in.bits);
        if (symbol < 0) return false;
        in.drop(length);
        const int size = symbol & 15;
        k += symbol >> 4;
        if (size > 0) {
          block[kNaturalOrder[static_cast<std::size_t>(k)]] = static_cast<JCOEF>(extend(in.bits, size));
          in.drop(size);
        } else if (symbol >> 4 != 15) {
          return true;
        }
        if (++k >= DCTSIZE2) return k == DCTSIZE2;
        break;
      }
      in.drop(next.length);
      k += next.run;
      block[kNaturalOrder[static_cast<std::size_t>(k)]] = next.value;
      if (++k >= DCTSIZE2) return k == DCTSIZE2;
    }
  }
}

HEADRACE_INLINE bool pass_block(Bits& in, const HuffmanTable& dc, const AcTable& ac, int& predictor) {
  if (!decode_dc(in, dc, predictor)) return false;
  for (int k = 1;;) {
    refill(in);
    for (int i = 0; i < kAtOnce; ++i) {
      const AcTable::Passed passed = ac.pass(in.bits);
      const int after = k + passed.advance();
      // The next block begins after this one's last coefficient, but the first symbol may be the last one.
      if (passed.length() == 0 || after > DCTSIZE2) {
        const HuffmanSymbol next = ac.lookup(in.bits);
        if (next.run == HuffmanTable::kEnd) {
          in.drop(next.value);
          return true;
        }
        if (next.length > 0) {
          in.drop(next.length);
          k += next.run + 1;
        } else {
          refill(in);
          const auto [symbol, length] = ac.long_symbol(in.bits);
          if (symbol < 0) return false;
          const int size = symbol & 15;
          in.drop(length + size);
          if (size == 0 && symbol >> 4 != 15) return true;
          k += (symbol >> 4) + 1;
        }
        if (k >= DCTSIZE2) return k == DCTSIZE2;
        break;
      }
      in.drop(passed.length());
      k = after;
      if (passed.ends() || k == DCTSIZE2) return true;
    }
  }
}

}  // namespace

struct JpegEntropy::Scan {
  /// libjpeg's view: its own decoders begin with these members.
  struct Hook : jpeg_entropy_decoder {
    Scan* scan = nullptr;
  };
  struct Block {
    const HuffmanTable* dc = nullptr;
    const AcTable* ac = nullptr;
    int component = 0;
  };

  Hook hook{};
  std::array<HuffmanTable, NUM_HUFF_TBLS> dc;
  std::array<AcTable, NUM_HUFF_TBLS> ac;
  std::array<Block, D_MAX_BLOCKS_IN_MCU> blocks{};  ///< of one MCU
  std::array<int, MAX_COMPS_IN_SCAN> predictors{};
  Bits bits;
  JDIMENSION column = 0, columns = 0;  ///< of MCUs
  JDIMENSION first_needed = 0, end_needed = 0;
  unsigned restart_interval = 0, to_restart = 0, next_restart = 0;

  bool find_tables(const jpeg_decompress_struct& info, bool small);
  bool restart();
  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks);
};

JpegEntropy::JpegEntropy() = default;
JpegEntropy::~JpegEntropy() = default;

void JpegEntropy::take_over(jpeg_decompress_struct& info, std::span<const std::uint8_t> scan) {
  active_ = false;
  if (!kKnownLibjpeg || info.progressive_mode || info.arith_code || info.data_precision != 8 ||
      info.comps_in_scan != info.num_components || jpeg_has_multiple_scans(&info))
    return;
  if (!scan_) scan_ = std::make_unique<Scan>();
  if (!scan_->find_tables(info, scan.size() < kSmallScan)) return;
  scan_->bits = {.next = scan.data(), .end = scan.data() + scan.size()};
  scan_->predictors.fill(0);
  scan_->column = scan_->first_needed = 0;
  scan_->columns = scan_->end_needed = info.MCUs_per_row;
  scan_->restart_interval = scan_->to_restart = info.restart_interval;
  scan_->next_restart = 0;
  static_cast<jpeg_entropy_decoder&>(scan_->hook) = *info.entropy;
  scan_->hook.decode_mcu = Scan::decode_mcu;
  scan_->hook.scan = scan_.get();
  info.entropy = &scan_->hook;
  active_ = true;
}

const std::uint8_t* JpegEntropy::position() const {
  return active_ ? scan_->bits.next : nullptr;
}

void JpegEntropy::need(const jpeg_decompress_struct& info, JDIMENSION x, JDIMENSION width) {
  if (!scan_) return;
  const bool single = info.num_components == 1;
  const auto mcu = static_cast<JDIMENSION>(single ? DCTSIZE : DCTSIZE * info.max_h_samp_factor);
  scan_->first_needed = x / mcu;
  scan_->end_needed = (x + width + mcu - 1) / mcu;
}

bool JpegEntropy::Scan::find_tables(const jpeg_decompress_struct& info, bool small) {
  for (int i = 0; i < info.blocks_in_MCU; ++i) {
    const int component = info.MCU_membership[i];
    const jpeg_component_info& of = *info.cur_comp_info[component];
    const JHUFF_TBL* const dc_table = info.dc_huff_tbl_ptrs[of.dc_tbl_no];
    const JHUFF_TBL* const ac_table = info.ac_huff_tbl_ptrs[of.ac_tbl_no];
    if (dc_table == nullptr || ac_table == nullptr) return false;
    HuffmanTable& our_dc = dc[static_cast<std::size_t>(of.dc_tbl_no)];
    AcTable& our_ac = ac[static_cast<std::size_t>(of.ac_tbl_no)];
    if (small && !(our_dc.is(*dc_table) && our_ac.is(*ac_table))) return false;
    if (!our_dc.is(*dc_table)) our_dc.make(*dc_table, false);
    if (!our_ac.is(*ac_table)) our_ac.make(*ac_table);
    blocks[static_cast<std::size_t>(i)] = {&our_dc, &our_ac, component};
  }
  return true;
}

bool JpegEntropy::Scan::restart() {
  // Only padding bits of the last byte may remain, and the marker must be the next in turn.
  if (bits.count >= 8 || bits.count < 0) return false;
  while (bits.end - bits.next > 2 && bits.next[0] == 0xFF && bits.next[1] == 0xFF)
    ++bits.next;  // T.81, B.1.1.2
  if (bits.end - bits.next < 2 || bits.next[0] != 0xFF || bits.next[1] != 0xD0 + next_restart) return false;
  bits = {.next = bits.next + 2, .end = bits.end};
  predictors.fill(0);
  next_restart = (next_restart + 1) % 8;
  to_restart = restart_interval;
  return true;
}

boolean JpegEntropy::Scan::decode_mcu(j_decompress_ptr info, JBLOCKROW* coefficients) {
  Scan& self = *static_cast<Hook*>(info->entropy)->scan;
  bool good = self.restart_interval == 0 || self.to_restart > 0 || self.restart();
  --self.to_restart;
  const bool needed =
      coefficients != nullptr && self.column >= self.first_needed && self.column < self.end_needed;
  if (++self.column == self.columns) self.column = 0;
  Bits in = self.bits;
  for (std::size_t i = 0; good && i < static_cast<std::size_t>(info->blocks_in_MCU); ++i) {
    const Block& block = self.blocks[i];
    int& predictor = self.predictors[static_cast<std::size_t>(block.component)];
    good = needed ? decode_block(in, *block.dc, *block.ac, predictor, coefficients[i][0])
                  : pass_block(in, *block.dc, *block.ac, predictor);
    good = good && predictor == static_cast<JCOEF>(predictor);  // before sums overflow
  }
  self.bits = in;
  if (!good || in.count < 0) {
    info->err->msg_code = kOddScan;
    (*info->err->error_exit)(reinterpret_cast<j_common_ptr>(info));
  }
  return TRUE;
}

}  // namespace headrace::server::decode
