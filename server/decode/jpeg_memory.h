// Keeps libjpeg's memory for one image to use it for the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace headrace::server::decode {

/// Replaces libjpeg's JPOOL_IMAGE, which calls malloc and free for every image. What lives longer stays
/// libjpeg's own, and so do the coefficients of progressive files (its virtual arrays).
///
/// The permanent memory that libjpeg requests while reading is for tables (quantization, Huffman). libjpeg
/// would keep them for files without tables of their own, whose pixels would then depend on the image decoded
/// before. forget_tables() prevents this, so tables use the memory of one image, too.
///
/// Not thread safe: belongs to one decompressor.
class JpegMemory {
 public:
  /// `info` was created and has read nothing yet. Its client_data becomes this object, which must outlive it.
  void attach(jpeg_decompress_struct& info);
  /// Call it before each header is read.
  static void forget_tables(jpeg_decompress_struct& info);

 private:
  struct Free {
    // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): it comes from malloc, because new may throw
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<std::byte, Free> bytes;
    std::size_t size = 0;
  };

  /// Memory for one image, aligned; calls libjpeg's error_exit if there is none.
  static void* alloc(j_common_ptr info, std::size_t size);
  /// Memory for one image: `count` rows of `width` bytes, padded to whole vectors, and pointers to them.
  template <class Row>
  static Row* rows(j_common_ptr info, std::size_t width, std::size_t count);
  void* take(std::size_t size);
  bool add(std::size_t size);
  void give_back();

  void (*free_pool_)(j_common_ptr, int) = nullptr;  ///< libjpeg's
  /// Each block is at least twice as large as the previous one, so this number is enough for any memory.
  std::array<Block, 48> blocks_;
  std::size_t count_ = 0, used_ = 0;  ///< blocks; bytes of the last one
};

}  // namespace headrace::server::decode
