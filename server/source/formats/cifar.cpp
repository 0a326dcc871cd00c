#include "server/source/formats/cifar.h"

#include <fmt/format.h>

#include <initializer_list>
#include <sstream>

#include "server/remote/url.h"
#include "server/source/files/text_lines.h"
#include "server/source/formats/pixel_table.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kSide = 32;
constexpr std::size_t kPixels = 3 * 32 * 32;
/// The largest of the original files has 154 MB.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;
constexpr std::uint64_t kLongestNames = std::uint64_t{1} << 20;

/// The layout of one of the two datasets: a record is `label_bytes`, then the planes.
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

/// A file of the dataset, which may be a URL.
fs::path file_of(const CifarOptions& options, const std::string& name) {
  const std::string root = options.path.string();
  return remote::is_url(root) ? fs::path(remote::below(root, name)) : options.path / name;
}

/// None: the file does not exist.
Result<std::vector<std::string>> lines_of(const fs::path& path, const RemotePtr& remote) {
  std::vector<std::string> lines;
  const auto there = is_there(path, remote);
  if (!there) return fail(there.error());
  if (!*there) return lines;
  const auto bytes = read_whole(path, remote, [](auto) { return kLongestNames; });
  if (!bytes) return fail(bytes.error());
  std::istringstream text(std::string(bytes->begin(), bytes->end()));
  each_line(text, [&](std::uint64_t, std::string_view line) { lines.emplace_back(line); });
  return lines;
}

/// Whether one of these files exists.
Result<bool> any_there(const CifarOptions& options, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto there = is_there(file_of(options, name), options.remote);
    if (!there || *there) return there;
  }
  return false;
}

}  // namespace

Result<std::shared_ptr<const Source>> open_cifar(const CifarOptions& options) {
  const auto ten = any_there(options, {"test_batch.bin", "data_batch_1.bin"});
  if (!ten) return fail(ten.error());
  const auto hundred = any_there(options, {"train.bin", "test.bin"});
  if (!hundred) return fail(hundred.error());
  if (*ten == *hundred)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: {}; name the unpacked folder of the binary version, cifar-10-batches-bin or "
                            "cifar-100-binary",
                            remote::shown(options.path.string()),
                            *ten ? "holds files of CIFAR-10 and of CIFAR-100"
                                 : "holds neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)"));
  const Layout layout = layout_of(options, *hundred);
  const std::size_t record = layout.label_bytes + kPixels;
  PixelTable table;
  table.shape = {.width = kSide, .height = kSide, .channels = 3, .planar = true};
  table.fingerprint = layout.label_at + 0x4349464152;
  for (const std::string& name : layout.files) {
    const fs::path path = file_of(options, name);
    auto bytes = read_whole(path, options.remote, [](auto) { return kLargestFile; });
    if (!bytes) return fail(bytes.error());
    if (bytes->empty() || bytes->size() % record != 0)
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("{}: expected a multiple of {} bytes (one record), found {} bytes; the file is "
                              "truncated, or it "
                              "belongs to the other CIFAR (10 or 100): fetch it again",
                              remote::shown(path.string()), record, bytes->size()));
    const std::size_t count = bytes->size() / record;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t label = (*bytes)[i * record + layout.label_at];
      if (label >= layout.classes)
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("{}: label {} of image {}: there are {} classes",
                                remote::shown(path.string()), label, i, layout.classes));
      table.labels.push_back(label);
    }
    table.fingerprint = hash_of(*bytes, table.fingerprint);
    table.files.push_back({name, std::move(*bytes), layout.label_bytes, record, count});
  }
  auto names = lines_of(file_of(options, layout.names), options.remote);
  if (!names) return fail(std::move(names.error()));
  table.classes = std::move(*names);
  if (table.classes.size() != layout.classes) {
    table.classes.clear();
    for (std::size_t i = 0; i < layout.classes; ++i) table.classes.push_back(std::to_string(i));
  }
  return make_pixel_source(std::move(table));
}

described::Description<CifarOptions> CifarOptions::description() {
  using Self = CifarOptions;
  return {
      "cifar",
      "CIFAR-10 or CIFAR-100, binary version.",
      {described::required("path", &Self::path, described::data_path(),
                           "The unpacked folder: cifar-10-batches-bin or cifar-100-binary."),
       described::key("set", &Self::set,
                      described::word<CifarSet>({{"train", CifarSet::kTrain}, {"test", CifarSet::kTest}})),
       described::key(
           "labels", &Self::labels,
           described::word<CifarLabels>({{"fine", CifarLabels::kFine}, {"coarse", CifarLabels::kCoarse}}),
           "CIFAR-100 only: which of its two sets of labels.")}};
}

namespace types {
SourceType cifar() {
  return source_type<CifarOptions>(
      {.network = true, .io = false, .in_memory = "a cifar source is in memory already"},
      [](const CifarOptions& options, const OpenContext& context) {
        CifarOptions all = options;
        all.remote = context.remote;
        return open_cifar(all);
      });
}
}  // namespace types

}  // namespace headrace::server::source
