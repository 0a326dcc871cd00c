#include "server/source/formats/image_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/remote/url.h"
#include "server/source/columns/class_folders.h"
#include "server/source/columns/file_column.h"
#include "server/source/files/at_once.h"
#include "server/source/remote/url_folder.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

/// Adds the images of all classes to `out` and `column`.
Result<void> list_classes(ClassFolders& out, FileColumn& column) {
  struct Found {
    Result<std::vector<FoundFolder>> folders;
    LeftOut left_out;
  };
  // A few classes at a time, because lists of files are larger than what is kept of them.
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t begin = 0; begin < out.classes.size(); begin += kAtOnce) {
    std::vector<Found> found(std::min(kAtOnce, out.classes.size() - begin));
    for_each_at_once(found.size(), [&](std::size_t i) {
      found[i].folders = walk(column.root_fd(), out.classes[begin + i], out.root, found[i].left_out);
    });
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t before = out.labels.size();
      if (!found[i].folders) return fail(std::move(found[i].folders.error()));
      for (const auto& folder : *found[i].folders) {
        const std::string path = folder.path + "/";
        for (const auto& file : folder.files) column.add_in(path, file);
      }
      out.labels.resize(column.size(), static_cast<std::uint32_t>(begin + i));
      out.left_out.add(found[i].left_out.count, found[i].left_out.first);
      if (out.labels.size() == before) out.empty.push_back(out.classes[begin + i]);
    }
  }
  return {};
}

Result<std::shared_ptr<const Source>> index(std::unique_ptr<FileColumn> column) {
  ClassFolders out{.root = column->root(),
                   .images = {},
                   .labels = {},
                   .classes = {},
                   .empty = {},
                   .left_out = {},
                   .strays = {}};
  auto top = list_folder(column->root_fd(), ".", out.root);
  if (!top) return fail(std::move(top.error()));
  if (top->folders.empty()) {
    const auto found = top->images.empty()
                           ? "is without class folders"
                           : fmt::format("holds {} image{} but no class folders", top->images.size(),
                                         top->images.size() == 1 ? "" : "s");
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("image folder {0} {1}; put the images into one folder per class, as in "
                            "{0}/cat/1.jpg, or serve them without "
                            "labels: {{type: paired_folders, fields: {{image: {0}}}}}",
                            out.root, found));
  }
  out.classes = std::move(top->folders);
  out.strays = std::move(top->images);
  if (auto listed = list_classes(out, *column); !listed) return fail(std::move(listed.error()));
  out.images = std::move(column);
  return make_class_folders(std::move(out));
}

}  // namespace

Result<std::shared_ptr<const Source>> open_image_folder(const std::filesystem::path& root,
                                                        const ReadPolicy& read) {
  ring::UniqueFd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) {
    const int error = errno;
    const char* remedy = "check its disk";
    if (error == ENOENT) remedy = "create or mount it, or correct the source's `path`";
    if (error == ENOTDIR) remedy = "the source's `path` must name a folder with one folder per class";
    if (error == EACCES) remedy = "give this user the right to read it";
    const bool limit = error == EMFILE || error == ENFILE;
    return fail(limit ? ErrorCode::kEnvironment : ErrorCode::kDatasetInvalid,
                fmt::format("image folder {}: {}; {}", root.string(), std::strerror(error), remedy));
  }
  auto shown = root.string();
  while (shown.size() > 1 && shown.back() == '/') shown.pop_back();
  return index(std::make_unique<FileColumn>(SourceField{}, shown, std::move(fd), read));
}

described::Description<ImageFolderOptions> ImageFolderOptions::description() {
  return {"image_folder",
          "A folder with one folder per class, as torchvision's ImageFolder.",
          {described::required(
              "path", &ImageFolderOptions::path, described::data_path(),
              "A folder, or s3://bucket/folder. Relative paths are relative to the configuration's "
              "folder.")}};
}

namespace types {
SourceType image_folder() {
  return source_type<ImageFolderOptions>(
      {.network = true,
       .refuse =
           [](const std::string& url) {
             return remote::is_s3(url) ? ""
                                       : "HTTP has no listings of folders: use s3://, a manifest with `root: "
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
