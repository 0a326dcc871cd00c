#include "server/source/formats/basicsr_lmdb.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "server/source/files/text_lines.h"
#include "server/source/problems.h"
#include "server/source/size_sample.h"
#include "server/store/store.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;

constexpr const char* kList = "meta_info.txt";

std::string_view without_extension(std::string_view path) {
  const auto dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(0, dot);
}

std::optional<std::int32_t> side(std::string_view text) {
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

/// Parses "name.png (h,w,c) level"; the level may be missing.
std::optional<BasicSrColumn::Listed> parse(std::string_view line) {
  const auto open = line.rfind(" ("), close = line.rfind(')');
  if (open == std::string_view::npos || open == 0 || close == std::string_view::npos || close < open)
    return std::nullopt;
  const std::string_view sides = line.substr(open + 2, close - open - 2);
  const auto first = sides.find(','), second = sides.find(',', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return std::nullopt;
  const auto height = side(sides.substr(0, first));
  const auto width = side(sides.substr(first + 1, second - first - 1));
  if (!height || !width) return std::nullopt;
  return BasicSrColumn::Listed{std::string(line.substr(0, open)), {*width, *height}};
}

}  // namespace

bool BasicSrColumn::is_one(const fs::path& folder) {
  std::error_code status;
  return fs::exists(folder / "data.mdb", status);
}

Result<std::unique_ptr<BasicSrColumn>> BasicSrColumn::open(SourceField field, const fs::path& folder) {
  auto env = store::Env::open(folder, store::Env::Access::kRandom);
  if (!env) return fail(std::move(env.error()));
  std::error_code status;
  if (!fs::exists(folder / kList, status)) {
    const bool packed = store::inspect(*env).has_value();
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("{}: {}", folder.string(),
                    packed ? "headrace pack wrote it: give it to a source of type lmdb"
                           : "is an LMDB without meta_info.txt, so not BasicSR's: what its values are "
                             "is not known. Make one by BasicSR's create_lmdb.py, or write the images "
                             "into a folder"));
  }
  std::unique_ptr<BasicSrColumn> column(
      new BasicSrColumn(std::move(field), folder.string(), std::move(*env)));
  auto read = column->walk();
  if (read) read = column->read_list();
  if (const auto lost = column->fault()) return fail(*lost);
  if (!read) return fail(std::move(read.error()));
  return column;
}

Result<void> BasicSrColumn::walk() {
  const auto txn = store::Txn::begin(env_, false);
  if (!txn) return fail(txn.error());
  bool sound = true;
  auto walked = txn->each([&](store::Bytes key, store::Bytes value) {
    sound = env_.holds(key) && env_.holds(value);
    if (sound) entries_.push_back({{reinterpret_cast<const char*>(key.data()), key.size()}, value});
    return sound;
  });
  if (!walked || sound) return walked;
  return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: its pages are damaged; create it again", root_));
}

Result<void> BasicSrColumn::read_list() {
  const fs::path file = env_.folder() / kList;
  Problems problems;
  const auto why = each_line(file, [&](std::uint64_t line, std::string_view text) {
    auto one = parse(text);
    if (!one) return problems.add(file, line, fmt::format("\"{}\" is not \"name.png (h,w,c) level\"", text));
    if (find(one->path) == nullptr)
      return problems.add(file, line,
                          fmt::format("the database has no \"{}\"; create it again, or remove the line",
                                      without_extension(one->path)));
    listed_.push_back(std::move(*one));
  });
  if (!why.empty()) problems.add(fmt::format("{}: cannot be read: {}", file.string(), why));
  if (problems.none() && listed_.empty()) problems.add(fmt::format("{}: lists no image", file.string()));
  if (!problems.none()) return fail(problems.error(ErrorCode::kDatasetInvalid));
  return {};
}

const BasicSrColumn::Entry* BasicSrColumn::find(std::string_view path) const {
  const std::string_view key = without_extension(path);
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const Entry& entry, std::string_view wanted) { return entry.key < wanted; });
  return found != entries_.end() && found->key == key ? &*found : nullptr;
}

void BasicSrColumn::add(std::string_view path) {
  const Entry* entry = find(path);
  if (entry == nullptr) return;  // the file was truncated since: finish() reports it
  rows_.push_back({pool_.size(), entry->value});
  pool_.append(path).push_back('\0');
}

Result<void> BasicSrColumn::finish() {
  entries_ = {};
  listed_ = {};
  pool_.shrink_to_fit();
  rows_.shrink_to_fit();
  if (const auto lost = fault()) return fail(*lost);
  return {};
}

Result<void> BasicSrColumn::read(std::uint64_t row, Item& out) const {
  const store::Bytes value = rows_.at(row).value;
  store::populate(value);
  out.bytes = value;
  out.pixels = {};
  return {};
}

std::string BasicSrColumn::name(std::uint64_t row) const {
  return pool_.data() + rows_.at(row).path;
}

void BasicSrColumn::add_to(Fingerprint& fingerprint) const {
  const SizeSample sizes(rows_.size());
  for (std::uint64_t row = 0; row < rows_.size(); ++row) {
    fingerprint.add(std::string_view(pool_.data() + rows_[row].path));
    if (sizes.index_of(row)) fingerprint.add(rows_[row].value.size());
  }
  fingerprint.add(std::uint64_t{field_.mask}).add(static_cast<std::uint64_t>(field_.scale));
}

}  // namespace headrace::server::source
