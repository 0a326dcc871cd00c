#include "server/decode/jpeg_entropy.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headrace::server::decode {
namespace {

/// Of a scan: what takes less than making tables for it does.
constexpr std::size_t kSmall = 4 * 1024;

/// T.81, figure A.6, and places for runs that lead out of a block, which is found after it.
constexpr std::array<std::uint8_t, 64 + 16> kNaturalOrder = [] {
  std::array<std::uint8_t, 64 + 16> order{};
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

/// T.81, F.2.2.1: the value of `size` bits. 1 <= size <= 15.
int extend(std::uint64_t bits, int size) {
  const int value = static_cast<int>(bits >> (64 - size));
  return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

}  // namespace

bool JpegEntropy::Table::is(const JHUFF_TBL& table) const {
  return made && std::memcmp(of.bits, table.bits, sizeof of.bits) == 0 &&
         std::memcmp(of.huffval, table.huffval, sizeof of.huffval) == 0;
}

void JpegEntropy::Table::make(const JHUFF_TBL& table, bool ac) {
  of = table;
  made = true;
  // Codes go up with their lengths (T.81, annex C): each one's places follow those of the one before.
  auto* to = look.data();
  std::int32_t code = 0, at = 0;
  for (int bits = 1; bits <= 16; ++bits, code <<= 1) {
    const auto of_length = static_cast<std::size_t>(bits);
    offset[of_length] = at - code;
    const int count = table.bits[of_length];
    for (int i = 0; i < count && bits <= kLookBits; ++i) {
      const std::uint8_t symbol = table.huffval[static_cast<std::size_t>(at + i)];
      const int size = ac ? symbol & 15 : symbol;
      const int run = ac ? symbol >> 4 : 0;
      const int free = kLookBits - bits;
      if (ac && size == 0 && run != 15) {
        to = std::fill_n(to, std::size_t{1} << free,
                         Symbol{.value = static_cast<std::int16_t>(bits), .run = kEnd});
      } else if (size > free) {
        to = std::fill_n(to, std::size_t{1} << free,
                         Symbol{.value = static_cast<std::int16_t>(bits << 8 | symbol), .run = kNoValue});
      } else {
        Symbol one{.run = static_cast<std::uint8_t>(run), .length = static_cast<std::uint8_t>(bits + size)};
        for (int value = 0; value < 1 << size; ++value) {
          one.value = static_cast<std::int16_t>(
              size == 0 || value >= 1 << (size - 1) ? value : value - (1 << size) + 1);
          to = std::fill_n(to, std::size_t{1} << (free - size), one);
        }
      }
    }
    code += count;
    at += count;
    max_code[of_length] = count > 0 ? code - 1 : -1;
  }
  std::fill(to, look.data() + look.size(), Symbol{});
  if (ac) make_passes();
}

/// From few bits to many: behind a code and its value lies what fewer bits hold.
void JpegEntropy::Table::make_passes() {
  passes[0] = passes[1] = 0;  // [1 << bits]: of so many bits
  for (int bits = 1; bits <= kPassBits; ++bits) {
    auto* const begin = passes.data() + (std::size_t{1} << bits);
    auto* to = begin;
    std::size_t at = 0;
    for (int length = 1; length <= bits; ++length) {
      for (int i = 0; i < of.bits[length]; ++i, ++at) {
        const std::uint8_t symbol = of.huffval[at];
        const int size = symbol & 15, run = symbol >> 4;
        const int left = bits - length - size;
        const bool end = size == 0 && run != 15;
        if (left < 0 || end) {
          to = std::fill_n(to, std::size_t{1} << (bits - length),
                           end ? passed(length, 1, true) : passed(0, 0, false));
          continue;
        }
        const std::uint16_t one = passed(length + size, run + 1, false);
        const std::size_t count = std::size_t{1} << left;
        const auto* const behind = passes.data() + count;
        for (int value = 0; value < 1 << size; ++value)
          to = std::transform(behind, behind + count, to,
                              [one](std::uint16_t next) { return static_cast<std::uint16_t>(one + next); });
      }
    }
    std::fill(to, begin + (std::size_t{1} << bits), std::uint16_t{0});
  }
}

void JpegEntropy::take_over(jpeg_decompress_struct& info, std::span<const std::uint8_t> scan) {
  if (info.progressive_mode || info.arith_code || info.comps_in_scan != info.num_components ||
      info.inputctl->has_multiple_scans || info.data_precision != 8)
    return;
  for (int i = 0; i < info.blocks_in_MCU; ++i) {
    const int component = info.MCU_membership[i];
    const jpeg_component_info& of = *info.cur_comp_info[component];
    const JHUFF_TBL* dc = info.dc_huff_tbl_ptrs[of.dc_tbl_no];
    const JHUFF_TBL* ac = info.ac_huff_tbl_ptrs[of.ac_tbl_no];
    if (dc == nullptr || ac == nullptr) return;
    Table& dc_table = dc_[static_cast<std::size_t>(of.dc_tbl_no)];
    Table& ac_table = ac_[static_cast<std::size_t>(of.ac_tbl_no)];
    if (scan.size() < kSmall && !(dc_table.is(*dc) && ac_table.is(*ac))) return;
    if (!dc_table.is(*dc)) dc_table.make(*dc, false);
    if (!ac_table.is(*ac)) ac_table.make(*ac, true);
    blocks_[static_cast<std::size_t>(i)] = {&dc_table, &ac_table, component};
  }
  in_ = {.next = scan.data(), .end = scan.data() + scan.size()};
  predictors_.fill(0);
  column_ = 0;
  columns_ = info.MCUs_per_row;
  restart_interval_ = to_restart_ = info.restart_interval;
  next_restart_ = 0;
  static_cast<jpeg_entropy_decoder&>(face_) = *info.entropy;
  face_.decode_mcu = decode_mcu;
  face_.self = this;
  info.entropy = &face_;
}

namespace {

#define HEADRACE_INLINE [[gnu::always_inline]] inline

}  // namespace

/// What lies beyond `count` may be there already, of bytes that were not counted.
JpegEntropy::Bits JpegEntropy::refilled_slowly(Bits in) {
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

/// To 56 bits at least, or all that there are.
HEADRACE_INLINE void JpegEntropy::refill(Bits& in) {
  if (in.end - in.next >= 8) [[likely]] {
    const std::uint64_t word = load_big_endian(in.next);
    // No byte is 0xFF, after which something else than its bits may come.
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

JpegEntropy::Long JpegEntropy::long_symbol(std::uint64_t bits, const Table& table) {
  const Symbol& seen = table.look[bits >> (64 - kLookBits)];
  if (seen.run == kNoValue) return {seen.value & 0xFF, seen.value >> 8};
  for (int length = kLookBits + 1; length <= 16; ++length) {
    const auto of_length = static_cast<std::size_t>(length);
    const auto code = static_cast<std::int32_t>(bits >> (64 - length));
    if (code <= table.max_code[of_length])
      return {table.of.huffval[static_cast<std::size_t>(code + table.offset[of_length]) & 0xFF], length};
  }
  return {-1, 0};
}

HEADRACE_INLINE bool JpegEntropy::decode_dc(Bits& in, const Table& dc, int& predictor) {
  refill(in);
  if (const Symbol& first = dc.look[in.bits >> (64 - kLookBits)]; first.length > 0) {
    predictor += first.value;
    in.drop(first.length);
    return true;
  }
  const auto [size, length] = long_symbol(in.bits, dc);
  if (size < 0 || size > 15) return false;
  in.drop(length);
  if (size > 0) {
    predictor += extend(in.bits, size);
    in.drop(size);
  }
  return true;
}

HEADRACE_INLINE bool JpegEntropy::decode_block(Bits& in, const Table& dc, const Table& ac, int& predictor,
                                               JCOEF* block) {
  if (!decode_dc(in, dc, predictor)) return false;
  block[0] = static_cast<JCOEF>(predictor);
  for (int k = 1;;) {
    refill(in);
    // Each takes kLookBits at most.
    for (int i = 0; i < kAtOnce; ++i) {
      const Symbol next = ac.look[in.bits >> (64 - kLookBits)];
      if (next.length == 0) {
        if (next.run == kEnd) {
          in.drop(next.value);
          return true;
        }
        refill(in);
        const auto [symbol, length] = long_symbol(in.bits, ac);
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

HEADRACE_INLINE bool JpegEntropy::pass_block(Bits& in, const Table& dc, const Table& ac, int& predictor) {
  if (!decode_dc(in, dc, predictor)) return false;
  const std::uint16_t* const passes = ac.passes.data() + (std::size_t{1} << kPassBits);
  for (int k = 1;;) {
    refill(in);
    for (int i = 0; i < kAtOnce; ++i) {
      const std::uint16_t passed = passes[in.bits >> (64 - kPassBits)];
      const int after = k + (passed >> kAdvanceShift);
      // Beyond its last coefficient comes the next block, but the first of these may be the last.
      if ((passed & kLengthMask) == 0 || after > DCTSIZE2) {
        const Symbol next = ac.look[in.bits >> (64 - kLookBits)];
        if (next.run == kEnd) {
          in.drop(next.value);
          return true;
        }
        if (next.length > 0) {
          in.drop(next.length);
          k += next.run + 1;
        } else {
          refill(in);
          const auto [symbol, length] = long_symbol(in.bits, ac);
          if (symbol < 0) return false;
          const int size = symbol & 15;
          in.drop(length + size);
          if (size == 0 && symbol >> 4 != 15) return true;
          k += (symbol >> 4) + 1;
        }
        if (k >= DCTSIZE2) return k == DCTSIZE2;
        break;
      }
      in.drop(passed & kLengthMask);
      k = after;
      if (passed & kEndBit || k == DCTSIZE2) return true;
    }
  }
}

bool JpegEntropy::restart() {
  // All bits but those that fill the last byte were taken, and the marker is the one whose turn it is.
  if (in_.count >= 8 || in_.count < 0) return false;
  if (in_.end - in_.next < 2 || in_.next[0] != 0xFF || in_.next[1] != 0xD0 + next_restart_) return false;
  in_ = {.next = in_.next + 2, .end = in_.end};
  predictors_.fill(0);
  next_restart_ = (next_restart_ + 1) % 8;
  to_restart_ = restart_interval_;
  return true;
}

boolean JpegEntropy::decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
  JpegEntropy& self = *static_cast<Face*>(info->entropy)->self;
  bool good =
      self.restart_interval_ == 0 || self.to_restart_-- > 0 || (self.restart() && self.to_restart_-- > 0);
  const bool wanted = blocks != nullptr && self.column_ >= info->master->first_iMCU_col &&
                      self.column_ <= info->master->last_iMCU_col;
  if (++self.column_ == self.columns_) self.column_ = 0;
  Bits in = self.in_;
  for (std::size_t i = 0; good && i < static_cast<std::size_t>(info->blocks_in_MCU); ++i) {
    const Block& block = self.blocks_[i];
    int& predictor = self.predictors_[static_cast<std::size_t>(block.component)];
    good = wanted ? decode_block(in, *block.dc, *block.ac, predictor, blocks[i][0])
                  : pass_block(in, *block.dc, *block.ac, predictor);
    good = good && predictor == static_cast<JCOEF>(predictor);
  }
  self.in_ = in;
  if (!good || in.count < 0) {
    info->err->msg_code = kOddScan;
    (*info->err->error_exit)(reinterpret_cast<j_common_ptr>(info));
  }
  return TRUE;
}

}  // namespace headrace::server::decode
