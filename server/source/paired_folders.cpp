#include "server/source/paired_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "server/decode/decoder.h"
#include "server/source/file_column.h"
#include "server/source/folder_walk.h"

namespace headrace::server::source {
namespace {

constexpr std::size_t kListed = 10;

using Files =
    std::map<std::string, FoundFile>;  // by the name that partners share; FoundFile::name is the path

/// "photos/0001x4.png" with "{}x4" -> "photos/0001".
std::optional<std::string> common_name(const std::string& path, const std::string& names) {
  const auto slash = path.rfind('/');
  const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
  const std::string stem = path.substr(begin, path.rfind('.') - begin);
  const auto hole = names.find("{}");
  const std::string before = names.substr(0, hole), after = names.substr(hole + 2);
  if (stem.size() <= before.size() + after.size() || !stem.starts_with(before) || !stem.ends_with(after))
    return std::nullopt;
  return path.substr(0, begin) + stem.substr(before.size(), stem.size() - before.size() - after.size());
}

std::string shortened(std::vector<std::string> list) {
  const std::size_t total = list.size();
  if (total > kListed) list.resize(kListed);
  return fmt::format("{}{}", fmt::join(list, ", "),
                     total > kListed ? fmt::format(", ... ({} in all)", total) : "");
}

class Opener {
 public:
  explicit Opener(const std::map<std::string, PairedFolder>& folders) : folders_(folders) {}

  Result<std::shared_ptr<const Source>> open() {
    for (const auto& [field, folder] : folders_)
      if (auto listed = list(field, folder); !listed) return fail(listed.error());
    if (auto complete = check_partners(); !complete) return fail(complete.error());
    for (std::size_t f = 0; f < files_.size(); ++f)
      for (const auto& [name, file] : files_[f]) columns_[f]->add(file.name, file.bytes);
    if (auto scaled = set_scales(); !scaled) return fail(scaled.error());
    Table table{
        .origin = columns_.front()->root(), .columns = {}, .labels = {}, .classes = {}, .warning = {}};
    if (left_out_.count > 0)
      table.warning = fmt::format("{} images of kinds that are not read are left out: {}{}", left_out_.count,
                                  left_out_.first, left_out_.count > 1 ? ", ..." : "");
    for (auto& column : columns_) table.columns.push_back(std::move(column));
    return make_table(std::move(table));
  }

 private:
  Result<void> list(const std::string& field, const PairedFolder& folder) {
    auto column = FileColumn::open(
        {.name = field, .channels = folder.mask ? 1 : 3, .mask = folder.mask, .shape = {}}, folder.path);
    if (!column) return fail(column.error());
    auto found = walk((*column)->root_fd(), ".", (*column)->root(), left_out_);
    if (!found) return fail(found.error());
    Files files;
    std::vector<std::string> doubled;
    std::string stranger;
    for (FoundFolder& below : *found) {
      for (FoundFile& file : below.files) {
        const std::string path = below.path == "." ? file.name : below.path.substr(2) + "/" + file.name;
        const auto name = common_name(path, folder.names);
        if (!name) {
          stranger = path;  // another field's, maybe: that lies in the same folder
        } else if (!files.emplace(*name, FoundFile{path, file.bytes}).second) {
          doubled.push_back(path);
        }
      }
    }
    const auto refuse = [&](std::string_view what) {
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("field `{}`: folder {}: {}", field, folder.path.string(), what));
    };
    if (!doubled.empty())
      return refuse(
          fmt::format("two files of one name but for the extension: {}", shortened(std::move(doubled))));
    if (files.empty() && !stranger.empty())
      return refuse(
          fmt::format("no image is called as `names: \"{}\"` says; one is {}", folder.names, stranger));
    if (files.empty()) return refuse("holds no .jpg, .jpeg or .png");
    files_.push_back(std::move(files));
    columns_.push_back(std::move(*column));
    return {};
  }

  /// Each name of any folder must be in all of them.
  Result<void> check_partners() const {
    for (std::size_t one = 0; one < files_.size(); ++one) {
      for (std::size_t other = 0; other < files_.size(); ++other) {
        std::vector<std::string> alone;
        for (const auto& [name, file] : files_[one])
          if (!files_[other].contains(name)) alone.push_back(file.name);
        if (alone.empty()) continue;
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("images of {} have no partner in {} (field `{}`): {}{}",
                                columns_[one]->root(), columns_[other]->root(), columns_[other]->field().name,
                                shortened(std::move(alone)), hint(one, other)));
      }
    }
    return {};
  }

  /// "0001" here and "0001x4" there: says which `names` would fit.
  [[nodiscard]] std::string hint(std::size_t one, std::size_t other) const {
    const std::string& name = files_[one].begin()->first;
    for (const auto& [theirs, file] : files_[other])
      if (const auto at = theirs.find(name); at != std::string::npos)
        return fmt::format("; {} looks like its partner: give field `{}` the option names: \"{}{{}}{}\"",
                           file.name, columns_[other]->field().name,
                           theirs.substr(0, at).substr(theirs.rfind('/', at) + 1),
                           theirs.substr(at + name.size()));
    return "";
  }

  Result<void> set_scales() {
    std::vector<decode::ImageSize> sizes;
    std::int32_t smallest = std::numeric_limits<std::int32_t>::max();
    Item item;
    decode::Decoder decoder;
    for (const auto& column : columns_) {
      if (auto read = column->read(0, item); !read) return read;
      const auto size = decoder.open(item.image(), std::numeric_limits<std::uint32_t>::max());
      if (!size)
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("{}/{}: {} ({})", column->root(), column->name(0),
                                name_of(size.error().reason), size.error().detail));
      sizes.push_back(*size);
      smallest = std::min(smallest, size->width);
    }
    std::size_t f = 0;
    for (const auto& [field, folder] : folders_) {
      std::int32_t scale = folder.scale;
      if (scale == 0) {
        scale = sizes[f].width / smallest;
        const auto base = std::find_if(sizes.begin(), sizes.end(),
                                       [&](const auto& size) { return size.width == smallest; });
        if (base->width * scale != sizes[f].width || base->height * scale != sizes[f].height)
          return fail(
              ErrorCode::kDatasetInvalid,
              fmt::format(
                  "{}/{} has {} x {} pixels and its partner {} x {}: no whole multiple, so their scale is "
                  "not known. Give each field its `scale`, or cut the images",
                  columns_[f]->root(), columns_[f]->name(0), sizes[f].width, sizes[f].height, base->width,
                  base->height));
      }
      columns_[f++]->set_scale(scale);
    }
    return {};
  }

  const std::map<std::string, PairedFolder>& folders_;
  std::vector<std::unique_ptr<FileColumn>> columns_;
  std::vector<Files> files_;
  LeftOut left_out_;
};

}  // namespace

Result<std::shared_ptr<const Source>> open_paired_folders(
    const std::map<std::string, PairedFolder>& folders) {
  return Opener(folders).open();
}

}  // namespace headrace::server::source
