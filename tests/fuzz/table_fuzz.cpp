// IDX and CIFAR, whose files are tables of pixels.
// Input: 0: IDX (a piece with the images, then the labels); 1, 2: CIFAR-10, CIFAR-100 (the file's size, a
// piece with the names of classes, then patches of the file).
#include "server/source/formats/cifar.h"
#include "server/source/formats/idx.h"
#include "tests/fuzz/sources.h"
#include "tests/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::source;
  fuzz::Input input(data, size);
  const int kind = input.take<std::uint8_t>() % 3;
  if (kind == 0) {
    static const TempFolder folder;
    IdxOptions options;
    options.images = folder.put("images", fuzz::text_of(input.take_piece()));
    options.labels = folder.put("labels", fuzz::text_of(input.rest()));
    fuzz::read_source(fuzz::open_as(options));
    return 0;
  }
  static const TempFolder ten, hundred;
  const TempFolder& folder = kind == 1 ? ten : hundred;
  CifarOptions options;
  options.path = folder.path();
  options.set = CifarSet::kTest;
  options.labels = input.take<std::uint8_t>() % 2 ? CifarLabels::kCoarse : CifarLabels::kFine;
  std::vector<std::uint8_t> file(input.take_up_to(10'000));
  const char* const names = kind == 1                                ? "batches.meta.txt"
                            : options.labels == CifarLabels::kCoarse ? "coarse_label_names.txt"
                                                                     : "fine_label_names.txt";
  folder.put(names, fuzz::text_of(input.take_piece()));
  fuzz::patch(input, file);
  folder.put(kind == 1 ? "test_batch.bin" : "test.bin", fuzz::text_of(file));
  fuzz::read_source(fuzz::open_as(options));
  return 0;
}
