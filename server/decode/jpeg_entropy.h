// The Huffman codes of a baseline JPEG (ITU-T T.81, F.2.2), read for libjpeg: entropy decoding is three
// quarters of what a crop costs. One look into a table gives a coefficient's code, run and value together; of
// blocks that the region does not need, one look passes several coefficients, and nothing is stored.
//
// The coefficients are libjpeg's, bit for bit. Whatever is not as the standard has it (bytes missing or left
// over, unknown codes, blocks of more than 64 coefficients, restart markers out of turn) is not judged here:
// it is kOddScan, and libjpeg reads the file from its beginning with its own decoder, its messages included.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>
// jpegint.h needs jpeglib.h before it.
#include <jpegint.h>

namespace headrace::server::decode {

/// libjpeg's error code for a scan that its own decoder has to read.
inline constexpr int kOddScan = 100'004;

/// Not thread safe: of one decompressor. Tables are kept from one image to the next.
class JpegEntropy {
 public:
  /// After jpeg_start_decompress() and before any row is read or skipped: takes the place of libjpeg's
  /// decoder for this image, whose scan begins at `scan`. Does nothing for what it cannot read (progressive
  /// or arithmetic coding, several scans), nor where making tables would cost more than it saves. libjpeg's
  /// error_exit is called with kOddScan from its decoding calls.
  void take_over(jpeg_decompress_struct& info, std::span<const std::uint8_t> scan);

 private:
  static constexpr int kLookBits = 10, kPassBits = 12;
  /// Looks between two refills.
  static constexpr int kAtOnce = 4;
  static_assert(kAtOnce * kPassBits <= 56 && kLookBits <= kPassBits);

  /// What the next bits mean.
  struct Symbol {
    std::int16_t value = 0;
    std::uint8_t run = 0;     ///< zeros before it
    std::uint8_t length = 0;  ///< bits of the code and its value; 0: the code is longer, or one of these:
  };
  static constexpr std::uint8_t kEnd = 0xFF;      ///< a run: the block ends; `value` is the code's length
  static constexpr std::uint8_t kNoValue = 0xFE;  ///< a run: `value` is the code's length * 256 + its symbol
  /// As many symbols as so many bits hold: their length, whether the block ends with them, and by how many
  /// coefficients they lead on (its end counts as one).
  static constexpr std::uint16_t passed(int length, int advance, bool end) {
    return static_cast<std::uint16_t>(length | (end ? kEndBit : 0) | advance << kAdvanceShift);
  }
  static constexpr std::uint16_t kLengthMask = 0x1F, kEndBit = 0x20;
  static constexpr int kAdvanceShift = 6;

  /// One Huffman table in these forms, and for codes of more than kLookBits (T.81, F.2.2.3).
  struct Table {
    JHUFF_TBL of{};  ///< the table that this is made from
    bool made = false;
    std::array<Symbol, 1 << kLookBits> look;
    /// AC only. For n bits, from 1 << n on; the last half is what is looked into.
    std::array<std::uint16_t, 2 << kPassBits> passes;
    std::array<std::int32_t, 17> max_code, offset;  ///< of each length: -1: none; from a code to its place

    [[nodiscard]] bool is(const JHUFF_TBL& table) const;
    void make(const JHUFF_TBL& table, bool ac);
    void make_passes();
  };
  /// What libjpeg sees. Its members are those of its own decoders' beginning.
  struct Face : jpeg_entropy_decoder {
    JpegEntropy* self = nullptr;
  };
  struct Bits {
    const std::uint8_t* next = nullptr;
    const std::uint8_t* end = nullptr;
    std::uint64_t bits = 0;  ///< the next ones, from the top
    int count = 0;           ///< how many of these are there; below 0: more were taken than there are

    void drop(int length) {
      bits <<= length;
      count -= length;
    }
  };

  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks);
  [[nodiscard]] bool restart();
  static void refill(Bits& in);
  static Bits refilled_slowly(Bits in);
  static bool decode_dc(Bits& in, const Table& dc, int& predictor);
  static bool decode_block(Bits& in, const Table& dc, const Table& ac, int& predictor, JCOEF* block);
  static bool pass_block(Bits& in, const Table& dc, const Table& ac, int& predictor);
  struct Long {
    int symbol, length;
  };
  /// Of a code that `look` does not hold with its value: run and size, or -1: there is no such code.
  static Long long_symbol(std::uint64_t bits, const Table& table);

  Face face_{};
  std::array<Table, NUM_HUFF_TBLS> dc_, ac_;
  struct Block {
    const Table* dc;
    const Table* ac;
    int component;
  };
  std::array<Block, D_MAX_BLOCKS_IN_MCU> blocks_{};
  std::array<int, MAX_COMPS_IN_SCAN> predictors_{};
  Bits in_;
  std::uint32_t column_ = 0, columns_ = 0;  ///< of MCUs
  unsigned restart_interval_ = 0, to_restart_ = 0, next_restart_ = 0;
};

}  // namespace headrace::server::decode
