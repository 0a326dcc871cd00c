// Reads one epoch of a stream and prints a summary: consumer ADDRESS STREAM
#include <headrace/client.h>

#include <cstdint>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  auto client = headrace::Client::connect({.address = argv[1], .timeout = std::chrono::seconds(10)});
  if (!client) {
    std::cerr << client.error().to_string() << "\n";
    return 1;
  }
  headrace::OpenOptions options;
  options.stream = argv[2];
  auto stream = client->open(options);
  if (!stream) {
    std::cerr << stream.error().to_string() << "\n";
    return 1;
  }
  std::uint64_t batches = 0, rows = 0, bytes = 0;
  while (true) {
    auto batch = stream->next(std::chrono::seconds(30));
    if (!batch) {
      std::cerr << batch.error().to_string() << "\n";
      return 1;
    }
    if (!*batch) break;
    ++batches;
    rows += (*batch)->valid_rows();
    for (const auto& field : (*batch)->fields()) bytes += (*batch)->field(field.name)->bytes();
  }
  std::cout << "epoch: " << batches << " batches of " << stream->length() << ", " << rows << " rows of "
            << stream->info().samples << ", " << (bytes > 0 ? "with bytes" : "without bytes") << "\n";
  return batches == stream->length() && rows == stream->info().samples && bytes > 0 ? 0 : 1;
}
