// libjpeg's state behind a JpegReader, and the steps that call libjpeg: an error leaves a step by longjmp.
#pragma once

#include <array>
#include <csetjmp>
#include <cstdio>
#include <span>
#include <vector>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

#include "server/decode/jpeg.h"
#include "server/decode/jpeg_entropy.h"
#include "server/decode/jpeg_memory.h"
#include "server/decode/jpeg_tiles.h"

namespace headrace::server::decode {

/// Error codes beside libjpeg's JERR_ codes.
inline constexpr int kOutOfBytes = 100'001;
inline constexpr int kTooManyScans = 100'002;
inline constexpr int kOtherTiles = 100'003;
inline constexpr int kStopped = 100'004;

struct JpegReader::Handle : JpegMemory {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  int code = 0;
  char message[JMSG_LENGTH_MAX] = {};
  char first_warning[JMSG_LENGTH_MAX] = {};

  std::span<const std::uint8_t> encoded;
  std::span<const std::uint8_t> file;  // the input whose header was read: `encoded`, or a splice of its tiles
  long header_warnings = 0;
  JpegEntropy entropy;
  bool libjpeg_alone = false;  // do not use `entropy`
  Rect region;
  std::int32_t done = 0;  // rows of the region
  bool keep = false;
  std::int32_t slot = 0;      // row of the buffers at which the block begins
  std::int32_t block = 0;     // rows of the block being read
  std::int32_t left = 0;      // the region's first column in libjpeg's output
  std::size_t row_bytes = 0;  // of libjpeg's output
  bool inverted_cmyk = false;
  std::vector<std::uint8_t> rows, rgb;
  std::vector<std::uint8_t> line;  // one row of finish()

  bool tiled = false;  // the open file has a tile index
  TileMap tiles;
  TileCut cut;             // the part of it that is decoded
  J_COLOR_SPACE colors{};  // from the header of the whole file
  // The parameters that determine how many pixels a tile has.
  struct Frame {
    int components = 0;
    unsigned restart_mcus = 0;
    bool sequential = false;
    std::array<int, MAX_COMPONENTS> across{}, down{};
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  Frame frame;
  void note_frame();

  Handle();
  ~Handle() { jpeg_destroy_decompress(&info); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // The only frame that libjpeg's errors jump to. Steps hold nothing that needs a destructor.
  bool run(void (*step)(Handle&)) {
    if (setjmp(escape) != 0) return false;
    step(*this);
    return true;
  }
  // For a file with a tile index:
  bool read_tiles();
  bool take_tiles();
  // Ends rows as in an image of that width: fancy upsampling ends at its last column.
  void end_rows_at(JDIMENSION width);

  // Call between jpeg_read_header(), which resets these parameters, and jpeg_start_decompress().
  void set_output();
  void warn(const char* text) {
    if (errors.num_warnings++ == 0) std::snprintf(first_warning, sizeof(first_warning), "%s", text);
  }
  // Steps: advance to the region's first row; read `count` rows into the buffers from `at` on.
  void start();
  void read(std::int32_t at, std::int32_t count);
  // Advances to the region's next row again with libjpeg's own entropy decoder. False: libjpeg failed, too.
  bool reread();
  // Whether only the end of the image follows the remaining entropy-coded data.
  bool ends_plainly();
  // Decodes the whole image and what follows it, as PIL does. False: libjpeg refuses it.
  bool read_to_end();
  void finish();

  [[noreturn]] void leave(int error_code, const char* text) {
    code = error_code;
    std::snprintf(message, sizeof(message), "%s", text);
    std::longjmp(escape, 1);
  }
  // Keeps the count of warnings.
  bool read_header(std::span<const std::uint8_t> from) {
    file = from;
    source.next_input_byte = file.data();
    source.bytes_in_buffer = file.size();
    forget_tables(info);
    const long warned = errors.num_warnings;  // libjpeg resets it
    const bool good = run([](Handle& self) { jpeg_read_header(&self.info, TRUE); });
    errors.num_warnings += warned;
    return good;
  }
  tl::unexpected<Bad> failure();  ///< the error that ended a step

  static Handle& of(j_common_ptr common) { return of(common->client_data); }
  static Handle& of(j_decompress_ptr info) { return of(info->client_data); }
  static Handle& of(void* client_data) {
    return *static_cast<Handle*>(static_cast<JpegMemory*>(client_data));
  }
};

}  // namespace headrace::server::decode
