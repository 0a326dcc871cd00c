// The lower limit of a workload's cost: only its loop over memory, or its decoder.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace headrace::bench {

/// `run(n)` does the work for n samples on one thread, and keeps nothing between calls.
struct Loop {
  std::string name;
  std::function<void(std::size_t samples)> run;
};

/// Loops over arrays in memory: MNIST rows, CIFAR images, copies. About 0.6 GB.
std::vector<Loop> array_loops();
/// Loops over the JPEG files below `folder`: whole images, and the rectangles that random_resized_crop draws.
std::vector<Loop> jpeg_loops(const std::string& folder);
/// Loops over the PNG files below `folder`; a sample is a pair, two files.
std::vector<Loop> png_loops(const std::string& folder);

/// Decodes a PNG to rows of RGB by libpng; false if that fails. Without libpng the function is null.
using PngDecode =
    std::function<bool(const std::vector<unsigned char>& file, std::vector<unsigned char>& rgb)>;
PngDecode libpng_decode();

}  // namespace headrace::bench
