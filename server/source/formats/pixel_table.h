// Small decoded images of one size in memory: the content of IDX and CIFAR files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Bytes that hold images, one record after the other.
struct PixelFile {
  std::string name;  ///< for messages: sample i is "<name>#<i>"
  std::vector<std::uint8_t> bytes;
  std::size_t first = 0;   ///< offset of the first image's pixels
  std::size_t stride = 0;  ///< distance from one image to the next
  std::uint64_t count = 0;
};

struct PixelTable {
  std::vector<PixelFile> files;
  decode::PixelShape shape;          ///< of every image
  std::vector<std::uint8_t> labels;  ///< one per image, of all files
  std::vector<std::string> classes;
  std::uint64_t fingerprint = 0;  ///< of files and labels
};

/// REQUIRES: every image is within its file's bytes.
std::shared_ptr<const Source> make_pixel_source(PixelTable table);

/// xxh3 of the bytes; `seed` chains several calls.
std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes, std::uint64_t seed);

/// "0", "1", ...: as many as the labels need.
std::vector<std::string> numbered_classes(const std::vector<std::uint8_t>& labels);

}  // namespace headrace::server::source
