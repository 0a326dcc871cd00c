// Packed databases whose pages are damaged: an input patches a valid one. LMDB trusts its pages, so that a
// child process walks through them first (server/store/tree_check.h).
#include <fstream>
#include <iterator>

#include "server/source/formats/lmdb.h"
#include "server/store/store.h"
#include "server/store/writer.h"
#include "tests/fuzz/sources.h"
#include "tests/temp_folder.h"

namespace headrace::server::store {
namespace {

namespace fs = std::filesystem;

/// A set with an image and boxes, of more samples than one page has room for.
void write_set(const fs::path& folder) {
  constexpr std::uint64_t kCount = 40;
  Meta meta;
  meta.count = kCount;
  meta.fields = {
      {}, {.name = "boxes", .content = sample::Content::kRagged, .dtype = DType::kInt16, .shape = {4}}};
  meta.classes = {"cat", "dog"};
  auto writer = Writer::open(folder, meta).value();
  std::vector<std::uint8_t> scratch;
  Writer::Tables tables;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const std::vector<std::uint8_t> image(30 + (i == 7 ? 6000 : 0), 7), boxes(8 * (i % 3), 1);
    const RecordField fields[] = {{image}, {boxes}};
    std::vector<std::uint8_t> record;
    const auto label = static_cast<std::int64_t>(i % 2);
    encode({i, label, "s" + std::to_string(i), false, fields},
           i % 2 ? Compression::kZstd : Compression::kNone, scratch, record);
    require(writer.append(std::move(record), {.raw_bytes = 30, .lengths = {i % 3}}).has_value(),
            "a set is written");
    tables.labels.push_back(i % 2);
  }
  require(writer.commit() && writer.finish(tables), "a set is written");
}

std::vector<std::uint8_t> valid_file() {
  const TempFolder folder;
  write_set(folder.path() / "set");
  std::ifstream file(folder.path() / "set" / "data.mdb", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace
}  // namespace headrace::server::store

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  static const auto kValid = server::store::valid_file();
  static const TempFolder folder;
  auto file = kValid;
  fuzz::Input input(data, size);
  const auto cut = input.take<std::uint8_t>();
  if (cut != 0) file.resize(file.size() * cut / 256);
  fuzz::patch(input, file);
  folder.put("data.mdb", fuzz::text_of(file));
  const auto opened = fuzz::open_as(server::source::LmdbOptions{folder.path(), true});
  require(size > 0 || opened, "the set itself can be opened");
  const auto inspected = server::store::inspect(folder.path());
  require(!opened || inspected, "what can be opened can be inspected");
  fuzz::read_source(opened, 40);
  return 0;
}
