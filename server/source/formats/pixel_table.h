// A set of small images of one size that lies in memory, decoded: what IDX and CIFAR files hold.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

/// Bytes that images lie in, one record after the other.
struct PixelFile {
  std::string name;  ///< for messages: sample i of it is "<name>#<i>"
  std::vector<std::uint8_t> bytes;
  std::size_t first = 0;   ///< where the first image's pixels begin
  std::size_t stride = 0;  ///< from one image to the next
  std::uint64_t count = 0;
};

struct PixelTable {
  std::vector<PixelFile> files;
  decode::PixelShape shape;          ///< of every image
  std::vector<std::uint8_t> labels;  ///< of all files' images
  std::vector<std::string> classes;
  std::uint64_t fingerprint = 0;  ///< of files and labels
};

/// The caller has checked that everything fits.
std::shared_ptr<const Source> make_pixel_source(PixelTable table);

/// xxh3 of bytes, chained by seed.
std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes, std::uint64_t seed);

/// "0", "1", ...: as many as the labels need.
std::vector<std::string> numbered_classes(const std::vector<std::uint8_t>& labels);

}  // namespace headrace::server::source
