#include "server/source/cifar.h"

#include <fmt/format.h>

#include <fstream>

#include "server/source/pixel_table.h"
#include "server/source/whole_file.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kSide = 32;
constexpr std::size_t kPixels = 3 * 32 * 32;

/// Of one of the two sets: a record is `label_bytes`, then the planes.
struct Layout {
  std::vector<std::string> files;
  std::size_t label_bytes, label_at;
  std::size_t classes;
  const char* names;  ///< the text file with the class names
};

Layout layout_of(const CifarOptions& options, bool hundred) {
  const bool train = options.set == CifarSet::kTrain;
  if (hundred) {
    const bool fine = options.labels == CifarLabels::kFine;
    return {{train ? "train.bin" : "test.bin"},
            2,
            fine ? 1U : 0U,
            fine ? 100U : 20U,
            fine ? "fine_label_names.txt" : "coarse_label_names.txt"};
  }
  Layout layout{{"test_batch.bin"}, 1, 0, 10, "batches.meta.txt"};
  if (train) {
    layout.files.clear();
    for (int i = 1; i <= 5; ++i) layout.files.push_back(fmt::format("data_batch_{}.bin", i));
  }
  return layout;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

Result<std::shared_ptr<const Source>> open_cifar(const CifarOptions& options) {
  std::error_code status;
  const bool ten = fs::exists(options.path / "test_batch.bin", status) ||
                   fs::exists(options.path / "data_batch_1.bin", status);
  const bool hundred =
      fs::exists(options.path / "train.bin", status) || fs::exists(options.path / "test.bin", status);
  if (ten == hundred)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: {}; name the unpacked folder of the binary version, cifar-10-batches-bin or "
                            "cifar-100-binary",
                            options.path.string(),
                            ten ? "holds files of CIFAR-10 and of CIFAR-100"
                                : "holds neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)"));
  const Layout layout = layout_of(options, hundred);
  const std::size_t record = layout.label_bytes + kPixels;
  PixelTable table;
  table.shape = {.width = kSide, .height = kSide, .channels = 3, .planar = true};
  table.fingerprint = layout.label_at + 0x4349464152;
  for (const std::string& name : layout.files) {
    const fs::path path = options.path / name;
    auto bytes = read_whole(path);
    if (!bytes) return fail(bytes.error());
    if (bytes->empty() || bytes->size() % record != 0)
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("{}: {} bytes are no whole number of records of {}; it is cut, or of the other "
                              "CIFAR: fetch it again",
                              path.string(), bytes->size(), record));
    const std::size_t count = bytes->size() / record;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t label = (*bytes)[i * record + layout.label_at];
      if (label >= layout.classes)
        return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: label {} of image {}: there are {} classes",
                                                            path.string(), label, i, layout.classes));
      table.labels.push_back(label);
    }
    table.fingerprint = hash_of(*bytes, table.fingerprint);
    table.files.push_back({name, std::move(*bytes), layout.label_bytes, record, count});
  }
  table.classes = lines_of(options.path / layout.names);
  if (table.classes.size() != layout.classes) {
    table.classes.clear();
    for (std::size_t i = 0; i < layout.classes; ++i) table.classes.push_back(std::to_string(i));
  }
  return make_pixel_source(std::move(table));
}

}  // namespace headrace::server::source
