// Stands in for libFuzzer in ordinary builds: reads each file of the given folders once.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

std::vector<std::uint8_t> content_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  headrace::require(stream.good(), "an input cannot be read");
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(stream), {}};
  bytes.shrink_to_fit();  // a read behind the end is one behind the allocation
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  std::set<fs::path> files;
  for (const char* path : std::span(arguments, static_cast<std::size_t>(count)).subspan(1)) {
    if (fs::is_directory(path))
      files.insert(fs::directory_iterator(path), fs::directory_iterator());
    else
      files.insert(path);
  }
  for (const fs::path& file : files) {
    std::printf("%s\n", file.c_str());
    std::fflush(stdout);  // the last line names the file that ended the process
    const auto bytes = content_of(file);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;
}
