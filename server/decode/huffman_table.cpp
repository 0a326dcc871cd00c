#include "server/decode/huffman_table.h"

#include <algorithm>
#include <cstring>

namespace headrace::server::decode {
namespace {

std::uint16_t packed(int length, bool ends, int advance) {
  return static_cast<std::uint16_t>(length | (ends ? 0x20 : 0) | advance << 6);
}

}  // namespace

bool HuffmanTable::is(const JHUFF_TBL& table) const {
  return made_ && std::memcmp(made_from_.bits, table.bits, sizeof table.bits) == 0 &&
         std::memcmp(made_from_.huffval, table.huffval, sizeof table.huffval) == 0;
}

void HuffmanTable::make(const JHUFF_TBL& table, bool ac) {
  made_from_ = table;
  made_ = true;
  // Codes increase with their lengths: each code's entries follow those of the one before.
  auto* to = table_.data();
  std::int32_t code = 0, at = 0;
  for (int bits = 1; bits <= 16; ++bits, code <<= 1) {
    const auto of_length = static_cast<std::size_t>(bits);
    offset_[of_length] = at - code;
    const int count = table.bits[of_length];
    for (int i = 0; i < count && bits <= kLookBits; ++i) {
      const std::uint8_t symbol = table.huffval[static_cast<std::size_t>(at + i)];
      const int size = ac ? symbol & 15 : symbol;
      const int run = ac ? symbol >> 4 : 0;
      const int free = kLookBits - bits;
      HuffmanSymbol one{.run = static_cast<std::uint8_t>(run),
                        .length = static_cast<std::uint8_t>(bits + size)};
      if (ac && size == 0 && run != 15) one = {.value = static_cast<std::int16_t>(bits), .run = kEnd};
      if (size > free) one = {.value = static_cast<std::int16_t>(bits << 8 | symbol), .run = kNoValue};
      if (size == 0 || size > free) {
        to = std::fill_n(to, std::size_t{1} << free, one);
        continue;
      }
      for (int value = 0; value < 1 << size; ++value) {
        one.value = static_cast<std::int16_t>(extend(static_cast<std::uint64_t>(value) << (64 - size), size));
        to = std::fill_n(to, std::size_t{1} << (free - size), one);
      }
    }
    code += count;
    at += count;
    max_code_[of_length] = count > 0 ? code - 1 : -1;
  }
  std::fill(to, table_.data() + table_.size(), HuffmanSymbol{});
}

HuffmanTable::LongSymbol HuffmanTable::long_symbol(std::uint64_t bits) const {
  const HuffmanSymbol seen = lookup(bits);
  if (seen.run == kNoValue) return {seen.value & 0xFF, seen.value >> 8};
  for (int length = kLookBits + 1; length <= 16; ++length) {
    const auto of_length = static_cast<std::size_t>(length);
    const auto code = static_cast<std::int32_t>(bits >> (64 - length));
    if (code <= max_code_[of_length])
      return {made_from_.huffval[static_cast<std::size_t>(code + offset_[of_length]) & 0xFF], length};
  }
  return {-1, 0};
}

void AcTable::make(const JHUFF_TBL& table) {
  HuffmanTable::make(table, true);
  // From few bits to many: what follows a code and its value is the entry for fewer bits.
  passes_[0] = passes_[1] = 0;
  for (int bits = 1; bits <= kPassBits; ++bits) {
    auto* const begin = passes_.data() + (std::size_t{1} << bits);
    auto* to = begin;
    std::size_t at = 0;
    for (int length = 1; length <= bits; ++length) {
      for (int i = 0; i < table.bits[length]; ++i, ++at) {
        const std::uint8_t symbol = table.huffval[at];
        const int size = symbol & 15, run = symbol >> 4;
        const int left = bits - length - size;
        const bool ends = size == 0 && run != 15;
        if (left < 0 || ends) {
          to = std::fill_n(to, std::size_t{1} << (bits - length), ends ? packed(length, true, 1) : 0);
          continue;
        }
        const std::uint16_t one = packed(length + size, false, run + 1);
        const std::size_t count = std::size_t{1} << left;
        const auto* const behind = passes_.data() + count;
        for (int value = 0; value < 1 << size; ++value)
          to = std::transform(behind, behind + count, to,
                              [one](std::uint16_t next) { return static_cast<std::uint16_t>(one + next); });
      }
    }
    std::fill(to, begin + (std::size_t{1} << bits), std::uint16_t{0});
  }
}

}  // namespace headrace::server::decode
