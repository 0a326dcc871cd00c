// Makes a batch without a server: maker_consumer CONFIG STREAM
#include <headrace/maker.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const auto maker = headrace::Maker::open(argv[1], {.stream = argv[2], .threads = 2});
  if (!maker) {
    std::cerr << maker.error().to_string() << "\n";
    return 1;
  }
  const auto batch = maker->batch(0, maker->length().value() - 1);
  if (!batch) {
    std::cerr << batch.error().to_string() << "\n";
    return 1;
  }
  std::cout << "made " << batch->rows() << " rows, the last one of sample "
            << batch->sample_index(batch->rows() - 1) << "\n";
  return batch->sample_index(batch->rows() - 1) + 1 == maker->info().samples ? 0 : 1;
}
