// The least that a workload costs: its loop over memory or its decoder, and nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace headrace::bench {

/// `run(n)` does n samples of the work, on one thread, and keeps nothing from the call before.
struct Loop {
  std::string name;
  std::function<void(std::size_t samples)> run;
};

/// Of arrays in memory: MNIST rows, CIFAR images, copies. About 0.6 GB.
std::vector<Loop> array_loops();
/// Of the JPEG files below `folder`: whole, and the rectangles that random_resized_crop draws.
std::vector<Loop> jpeg_loops(const std::string& folder);
/// Of the PNG files below `folder`, all of them pixels in memory; a sample is a pair, two files.
std::vector<Loop> png_loops(const std::string& folder);

/// PNG to rows of RGB, by libpng; false where it fails. Without libpng nothing is there to call.
using PngDecode =
    std::function<bool(const std::vector<unsigned char>& file, std::vector<unsigned char>& rgb)>;
PngDecode libpng_decode();

}  // namespace headrace::bench
