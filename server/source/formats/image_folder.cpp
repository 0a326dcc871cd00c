#include "server/source/formats/image_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/remote/url.h"
#include "server/source/columns/file_column.h"
#include "server/source/files/at_once.h"
#include "server/source/files/folder_walk.h"
#include "server/source/remote/url_folder.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

class Indexer {
 public:
  explicit Indexer(std::unique_ptr<FileColumn> column) : column_(std::move(column)), root_(column_->root()) {}

  Result<std::shared_ptr<const Source>> index();

 private:
  Result<void> add_classes();

  std::unique_ptr<FileColumn> column_;
  const std::string root_;
  std::vector<std::uint32_t> labels_;
  std::vector<std::string> classes_;
  LeftOut left_out_;
};

Result<void> Indexer::add_classes() {
  struct Found {
    Result<std::vector<FoundFolder>> folders;
    LeftOut left_out;
  };
  // A few at a time, since lists of files are larger than what is kept of them.
  constexpr std::size_t kAtOnce = 64;
  std::vector<std::string> empty;
  for (std::size_t begin = 0; begin < classes_.size(); begin += kAtOnce) {
    std::vector<Found> found(std::min(kAtOnce, classes_.size() - begin));
    for_each_at_once(found.size(), [&](std::size_t i) {
      found[i].folders = walk(column_->root_fd(), classes_[begin + i], root_, found[i].left_out);
    });
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t before = labels_.size();
      if (!found[i].folders) return fail(std::move(found[i].folders.error()));
      for (const auto& folder : *found[i].folders) {
        const std::string path = folder.path + "/";
        for (const auto& file : folder.files) column_->add_in(path, file);
      }
      labels_.resize(column_->size(), static_cast<std::uint32_t>(begin + i));
      left_out_.add(found[i].left_out.count, found[i].left_out.first);
      if (labels_.size() == before) empty.push_back(classes_[begin + i]);
    }
  }
  if (empty.empty()) return {};
  return fail(empty_classes(root_, std::move(empty), classes_.size()));
}

Result<std::shared_ptr<const Source>> Indexer::index() {
  auto top = list_folder(column_->root_fd(), ".", root_);
  if (!top) return fail(std::move(top.error()));
  if (top->folders.empty()) {
    const auto found = top->images.empty()
                           ? "is without class folders"
                           : fmt::format("holds {} images but no class folders", top->images.size());
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("image folder {} {}; put the images into one folder per class, as in {}/cat/1.jpg", root_,
                    found, root_));
  }
  classes_ = std::move(top->folders);
  if (auto added = add_classes(); !added) return fail(std::move(added.error()));
  if (auto finished = column_->finish(); !finished) return fail(std::move(finished.error()));
  labels_.shrink_to_fit();
  std::string warning = joined(left_out_.warning(root_), classes_warning(root_, classes_));
  Table table{.origin = root_,
              .columns = {},
              .labels = std::move(labels_),
              .classes = std::move(classes_),
              .warning = std::move(warning)};
  table.columns.push_back(std::move(column_));
  return make_table(std::move(table));
}

}  // namespace

Result<std::shared_ptr<const Source>> open_image_folder(const std::filesystem::path& root,
                                                        const ReadPolicy& read) {
  const int fd = ::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    const char* remedy = "look at the disk it lies on";
    if (error == ENOENT) remedy = "create or mount it, or correct the source's `path`";
    if (error == ENOTDIR) remedy = "the source's `path` must name a folder with one folder per class";
    if (error == EACCES) remedy = "give this user the right to read it";
    const bool limit = error == EMFILE || error == ENFILE;
    return fail(limit ? ErrorCode::kEnvironment : ErrorCode::kDatasetInvalid,
                fmt::format("image folder {}: {}; {}", root.string(), std::strerror(error), remedy));
  }
  auto shown = root.string();
  while (shown.size() > 1 && shown.back() == '/') shown.pop_back();
  return Indexer(std::make_unique<FileColumn>(SourceField{}, shown, ring::UniqueFd(fd), read)).index();
}

described::Description<ImageFolderOptions> ImageFolderOptions::description() {
  return {"image_folder",
          "A folder with one folder per class, as torchvision's ImageFolder.",
          {described::required(
              "path", &ImageFolderOptions::path, described::path(),
              "Relative paths are relative to the configuration's folder. Or s3://bucket/folder.")}};
}

namespace types {
SourceType image_folder() {
  return source_type<ImageFolderOptions>(
      {.network = true,
       .refuse =
           [](const std::string& url) {
             return remote::is_s3(url)
                        ? ""
                        : "HTTP has no listings of folders: take s3://, a manifest with `root: "
                          "URL`, or WebDataset shards";
           },
       .by_sample = [](const described::Json&) { return true; }},
      [](const ImageFolderOptions& options, const OpenContext& context) {
        const std::string path = options.path.string();
        return remote::is_url(path) ? open_url_folder(path, context.remote) : open_image_folder(path);
      });
}
}  // namespace types

}  // namespace headrace::server::source
