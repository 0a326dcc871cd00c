// libjpeg's memory of one image, kept for the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace headrace::server::decode {

/// Takes the place of libjpeg's JPOOL_IMAGE, which calls malloc and free for every image. What lives longer
/// and was there before stays libjpeg's own, and so do the coefficients of progressive files (its virtual
/// arrays).
///
/// What libjpeg asks for as permanent once it reads are tables (quantisation, Huffman). It would keep them
/// for files without any of their own, which then have pixels of whatever was decoded before: so
/// forget_tables(), and theirs is the memory of one image, too.
///
/// Not thread safe: of one decompressor.
class JpegMemory {
 public:
  /// `info` was created and has read nothing yet. Its client_data is this object, which outlives it.
  void attach(jpeg_decompress_struct& info);
  /// Before each header is read.
  static void forget_tables(jpeg_decompress_struct& info);

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }  // NOLINT(cppcoreguidelines-no-malloc)
  };
  struct Block {
    std::unique_ptr<std::byte, Free> bytes;
    std::size_t size = 0;
  };

  /// Of one image, aligned; leaves by libjpeg's error_exit if there is no memory.
  static void* alloc(j_common_ptr info, std::size_t size);
  /// Of one image: `count` rows of `width` bytes, padded to whole vectors, and pointers to them.
  template <class Row>
  static Row* rows(j_common_ptr info, std::size_t width, std::size_t count);
  void* take(std::size_t size);
  bool add(std::size_t size);
  void give_back();

  void (*free_pool_)(j_common_ptr, int) = nullptr;  ///< libjpeg's
  /// Each is twice as large as the one before it at least, so that these are enough for any memory.
  std::array<Block, 48> blocks_;
  std::size_t count_ = 0, used_ = 0;  ///< blocks; bytes of the last one
};

}  // namespace headrace::server::decode
