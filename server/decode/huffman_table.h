// A JPEG's Huffman table (ITU-T T.81, annex C) as lookup tables: one lookup gives a coefficient's code, run
// and value together, or skips several coefficients whose values are not needed.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace headrace::server::decode {

/// The meaning of the next bits.
struct HuffmanSymbol {
  std::int16_t value = 0;
  std::uint8_t run = 0;  ///< zeros before it; kEnd or kNoValue, with `length` 0
  /// Bits of the code and its value; 0: see `run`, or the code is longer than a lookup.
  std::uint8_t length = 0;
};

/// T.81, F.2.2.1: the value of the first `size` of these bits. 1 <= size <= 15.
inline int extend(std::uint64_t bits, int size) {
  const int value = static_cast<int>(bits >> (64 - size));
  return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

class HuffmanTable {
 public:
  static constexpr int kLookBits = 10;
  static constexpr std::uint8_t kEnd = 0xFF;      ///< the block ends; `value` is the code's length
  static constexpr std::uint8_t kNoValue = 0xFE;  ///< `value` is the code's length * 256 + its symbol

  [[nodiscard]] bool is(const JHUFF_TBL& table) const;
  /// libjpeg must have accepted the table: no more codes than their lengths allow, and DC sizes up to 15.
  void make(const JHUFF_TBL& table, bool ac);

  [[nodiscard]] HuffmanSymbol lookup(std::uint64_t bits) const { return table_[bits >> (64 - kLookBits)]; }
  struct LongSymbol {
    int symbol, length;  ///< -1: there is no such code
  };
  /// For bits that lookup() cannot decode.
  [[nodiscard]] LongSymbol long_symbol(std::uint64_t bits) const;

 protected:
  JHUFF_TBL made_from_{};

 private:
  bool made_ = false;
  std::array<HuffmanSymbol, 1 << kLookBits> table_;
  std::array<std::int32_t, 17> max_code_{},
      offset_{};  ///< of each length; -1: none; maps a code to its index
};

class AcTable : public HuffmanTable {
 public:
  static constexpr int kPassBits = 12;

  void make(const JHUFF_TBL& table);

  /// The symbols that fit into kPassBits bits.
  struct Passed {
    std::uint16_t packed = 0;
    [[nodiscard]] int length() const { return packed & 0x1F; }  ///< bits; 0: not even one symbol
    [[nodiscard]] bool ends() const { return packed & 0x20; }   ///< the block, with the last of them
    [[nodiscard]] int advance() const {
      return packed >> 6;
    }  ///< coefficients; the end of a block counts as one
  };
  [[nodiscard]] Passed pass(std::uint64_t bits) const {
    return {passes_[(std::uint64_t{1} << kPassBits) + (bits >> (64 - kPassBits))]};
  }

 private:
  /// The entries for n bits begin at 1 << n.
  std::array<std::uint16_t, 2 << kPassBits> passes_;
};

}  // namespace headrace::server::decode
