#include "server/source/formats/paired_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "server/decode/decoder.h"
#include "server/described/names.h"
#include "server/source/columns/file_column.h"
#include "server/source/files/folder_walk.h"
#include "server/source/formats/basicsr_lmdb.h"
#include "server/source/problems.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

constexpr std::size_t kListed = 10;

struct Image {
  std::string path;
  decode::ImageSize size;  ///< 0: not known before it is read
};
using Images = std::map<std::string, Image>;  // by the name that partners share

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

class PairedFoldersOpener {
 public:
  explicit PairedFoldersOpener(const std::map<std::string, PairedFolder>& folders) : folders_(folders) {}

  Result<std::shared_ptr<const Source>> open() {
    for (const auto& [field, folder] : folders_)
      if (auto listed = list(field, folder); !listed) return fail(listed.error());
    if (auto complete = check_partners(); !complete) return fail(complete.error());
    for (std::size_t f = 0; f < images_.size(); ++f)
      for (const auto& [name, image] : images_[f]) columns_[f]->add(image.path);
    for (auto& column : columns_)
      if (auto finished = column->finish(); !finished) return fail(finished.error());
    if (auto scaled = set_scales(); !scaled) return fail(scaled.error());
    if (auto fit = check_sizes(); !fit) return fail(fit.error());
    Table table{
        .origin = columns_.front()->root(), .columns = {}, .labels = {}, .classes = {}, .warning = warning_};
    if (left_out_.count > 0)
      table.warning += fmt::format("{} images of kinds that are not read are left out: {}{}", left_out_.count,
                                   left_out_.first, left_out_.count > 1 ? ", ..." : "");
    for (auto& column : columns_) table.columns.push_back(std::move(column));
    return make_table(std::move(table));
  }

 private:
  Result<void> list(const std::string& field, const PairedFolder& folder) {
    const SourceField own{.name = field, .channels = folder.mask ? 1 : 3, .mask = folder.mask, .shape = {}};
    auto found = BasicSrColumn::is_one(folder.path) ? list_database(own, folder) : list_files(own, folder);
    if (!found) return fail(found.error());
    Images images;
    std::vector<std::string> doubled;
    std::string stranger;
    for (Image& image : *found) {
      const std::string path = image.path;
      const auto name = common_name(path, folder.names);
      if (!name) {
        stranger = path;  // perhaps another field's file in the same folder
      } else if (!images.emplace(*name, std::move(image)).second) {
        doubled.push_back(path);
      }
    }
    const auto refuse = [&](std::string_view what) {
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("field `{}`: folder {}: {}", field, folder.path.string(), what));
    };
    if (!doubled.empty())
      return refuse(
          fmt::format("two files of one name but for the extension: {}", shortened(std::move(doubled))));
    if (images.empty() && !stranger.empty())
      return refuse(
          fmt::format("no image is called as `names: \"{}\"` says; one is {}", folder.names, stranger));
    if (images.empty()) return refuse("holds no .jpg, .jpeg or .png");
    images_.push_back(std::move(images));
    return {};
  }

  Result<std::vector<Image>> list_files(const SourceField& field, const PairedFolder& folder) {
    auto column = FileColumn::open(field, folder.path);
    if (!column) return fail(column.error());
    auto found = walk((*column)->root_fd(), ".", (*column)->root(), left_out_);
    if (!found) return fail(found.error());
    std::vector<Image> images;
    for (FoundFolder& below : *found)
      for (std::string& file : below.files)
        images.push_back({below.path == "." ? std::move(file) : below.path.substr(2) + "/" + file, {}});
    columns_.push_back(std::move(*column));
    return images;
  }

  Result<std::vector<Image>> list_database(const SourceField& field, const PairedFolder& folder) {
    auto column = BasicSrColumn::open(field, folder.path);
    if (!column) return fail(column.error());
    std::vector<Image> images;
    for (const BasicSrColumn::Listed& one : (*column)->listed()) images.push_back({one.path, one.size});
    if (const auto more = (*column)->unlisted(); more > 0)
      warning_ += fmt::format("{} holds {} entries that meta_info.txt does not list, which are left out. ",
                              (*column)->root(), more);
    columns_.push_back(std::move(*column));
    return images;
  }

  /// Requires that each name of any folder is in all of them.
  Result<void> check_partners() const {
    for (std::size_t one = 0; one < images_.size(); ++one) {
      for (std::size_t other = 0; other < images_.size(); ++other) {
        std::vector<std::string> alone;
        for (const auto& [name, image] : images_[one])
          if (!images_[other].contains(name)) alone.push_back(image.path);
        if (alone.empty()) continue;
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("images of {} have no partner in {} (field `{}`): {}; {}",
                                columns_[one]->root(), columns_[other]->root(), columns_[other]->field().name,
                                shortened(std::move(alone)), hint(one, other)));
      }
    }
    return {};
  }

  /// The advice for images without partners. If names differ as "0001" and "0001x4" do, it gives the option
  /// `names` that matches them.
  [[nodiscard]] std::string hint(std::size_t one, std::size_t other) const {
    const std::string& name = images_[one].begin()->first;
    std::string complete = "add the partners, or remove these images";
    if (images_[other].contains(name)) return complete;
    for (const auto& [theirs, image] : images_[other])
      if (const auto at = theirs.find(name); at != std::string::npos)
        return fmt::format("{} looks like its partner: give field `{}` the option names: \"{}{{}}{}\"",
                           image.path, columns_[other]->field().name,
                           theirs.substr(0, at).substr(theirs.rfind('/', at) + 1),
                           theirs.substr(at + name.size()));
    return complete;
  }

  struct Sizes {
    std::uint64_t sample = 0;
    std::vector<decode::ImageSize> images;  ///< by column
  };

  /// The sizes of the first sample, of a few, whose images all open; the error of sample 0 if none does.
  [[nodiscard]] Result<Sizes> first_sizes() const {
    constexpr std::uint64_t kTries = 16;
    const auto tries = std::min<std::uint64_t>(kTries, images_.front().size());
    Result<Sizes> first = sizes_of(0);
    for (std::uint64_t sample = 1; !first && sample < tries; ++sample)
      if (auto sizes = sizes_of(sample)) return sizes;
    return first;
  }

  [[nodiscard]] Result<Sizes> sizes_of(std::uint64_t sample) const {
    Sizes sizes{sample, {}};
    Item item;
    decode::Decoder decoder;
    for (const auto& column : columns_) {
      if (auto read = column->read(sample, item); !read) return fail(read.error());
      const auto size = decoder.open(item.image(), std::numeric_limits<std::uint32_t>::max());
      if (!size)
        return fail(ErrorCode::kDatasetInvalid,
                    fmt::format("{}/{}: {}; a field is of JPEG or PNG files", column->root(),
                                column->name(sample), to_string(size.error())));
      sizes.images.push_back(*size);
    }
    return sizes;
  }

  Result<void> set_scales() {
    const auto sizes = first_sizes();
    if (!sizes) return fail(sizes.error());
    const decode::ImageSize& base =
        *std::min_element(sizes->images.begin(), sizes->images.end(),
                          [](const auto& one, const auto& other) { return one.width < other.width; });
    std::size_t f = 0;
    for (const auto& [field, folder] : folders_) {
      const decode::ImageSize& size = sizes->images[f];
      std::int32_t scale = folder.scale;
      if (scale == 0) {
        scale = size.width / base.width;
        if (base.width * scale != size.width || base.height * scale != size.height)
          return fail(
              ErrorCode::kDatasetInvalid,
              fmt::format(
                  "{}/{} has {} x {} pixels and its partner {} x {}: no whole multiple, so their scale is "
                  "not known. Give each field its `scale`, or cut the images",
                  columns_[f]->root(), columns_[f]->name(sizes->sample), size.width, size.height, base.width,
                  base.height));
      }
      columns_[f++]->set_scale(scale);
    }
    return {};
  }

  /// Compares each image with the first partner of scale 1; only images of known size.
  Result<void> check_sizes() const {
    Problems problems;
    for (const auto& [name, ignored] : images_.front()) {
      const Image* base = nullptr;
      std::size_t at = 0;
      for (std::size_t f = 0; f < images_.size() && base == nullptr; ++f) {
        const Image& image = images_[f].at(name);
        if (image.size.width > 0 && columns_[f]->field().scale == 1) base = &image;
        at = f;
      }
      for (std::size_t f = 0; base != nullptr && f < images_.size(); ++f) {
        const Image& image = images_[f].at(name);
        const std::int32_t scale = columns_[f]->field().scale;
        if (image.size.width == 0 || (image.size.width == std::int64_t{base->size.width} * scale &&
                                      image.size.height == std::int64_t{base->size.height} * scale))
          continue;
        problems.add(
            fmt::format("{}/{} has {} x {} pixels and its partner {}/{} {} x {}: at scale {} they do not "
                        "fit; cut the images, or correct `scale`",
                        columns_[f]->root(), image.path, image.size.width, image.size.height,
                        columns_[at]->root(), base->path, base->size.width, base->size.height, scale));
      }
    }
    if (!problems.none()) return fail(problems.error(ErrorCode::kDatasetInvalid));
    return {};
  }

  const std::map<std::string, PairedFolder>& folders_;
  std::vector<std::unique_ptr<ImageColumn>> columns_;
  std::vector<Images> images_;
  LeftOut left_out_;
  std::string warning_;
};

}  // namespace

Result<std::shared_ptr<const Source>> open_paired_folders(
    const std::map<std::string, PairedFolder>& folders) {
  return PairedFoldersOpener(folders).open();
}

namespace {

described::Description<PairedFolder> paired_folder() {
  using Self = PairedFolder;
  return {"",
          "",
          {described::required("path", &Self::path, described::data_path()),
           described::key("names", &Self::names,
                          described::text("^[^/{}]*\\{\\}[^/{}]*$",
                                          "a name with {} for the part of a file's name that is the same in "
                                          "all folders, such as \"{}x4\""),
                          "Names of the files, without extension; {} is the part that is the same in all "
                          "folders."),
           described::without_default(
               described::key("scale", &Self::scale, described::integer<std::int32_t>(1, 64),
                              "How many times larger its images are than those of a field "
                              "of scale 1, in width and height. Default: "
                              "taken from the first images.")),
           described::key("mask", &Self::mask, described::boolean(),
                          "Each pixel is a class (palette index or gray value) and is never interpolated.")}};
}

struct PairedFoldersOptions {
  std::map<std::string, PairedFolder> folders;  ///< by field

  static described::Description<PairedFoldersOptions> description() {
    const auto brief = described::converted<PairedFolder, std::filesystem::path>(
        described::data_path(), [](const std::filesystem::path& path) { return PairedFolder{.path = path}; },
        [](const PairedFolder& folder) { return folder.path; });
    const auto whole =
        described::expecting("a path, or a map with the key path", described::object(paired_folder()));
    auto folders =
        described::map(described::any_of<PairedFolder>(
                           {{brief, [](const described::Json& value) { return value.is_string(); }},
                            {whole, [](const described::Json& value) { return value.is_object(); }}}),
                       1, described::field());
    folders.schema["maxProperties"] = 8;
    return {
        "paired_folders",
        "Folders whose images belong together by name: low and high resolution, image and mask. A folder may "
        "be a database that BasicSR made.",
        {described::required("fields", &PairedFoldersOptions::folders, folders)}};
  }
};

}  // namespace

namespace types {
SourceType paired_folders() {
  return source_type<PairedFoldersOptions>(
      {.refuse =
           [](const std::string&) {
             return "pairs are looked for in folders, and not over the network: list them in a manifest with "
                    "`root: URL`";
           }},
      [](const PairedFoldersOptions& options, const OpenContext&) {
        return open_paired_folders(options.folders);
      });
}
}  // namespace types

}  // namespace headrace::server::source
