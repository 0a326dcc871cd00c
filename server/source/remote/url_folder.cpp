#include "server/source/remote/url_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "server/remote/url.h"
#include "server/source/columns/class_folders.h"
#include "server/source/files/at_once.h"
#include "server/source/remote/url_column.h"

namespace headrace::server::source {
namespace {

/// The content of a class.
struct Found {
  Result<void> listed;
  std::vector<remote::ListedObject> images;  ///< in ImageFolder's order
  LeftOut left_out;
};

std::pair<std::string_view, std::string_view> folder_and_name(std::string_view key) {
  const auto slash = key.rfind('/');
  return {key.substr(0, slash), key.substr(slash + 1)};
}

Found list_class(const std::string& url, std::size_t root_size, const remote::Remote& remote) try {
  auto page = remote.list(url, true);
  if (!page) return {fail(std::move(page.error())), {}, {}};
  Found out;
  for (remote::ListedObject& object : page->objects) {
    const std::string_view name = folder_and_name(object.key).second;
    if (is_left_out_name(name)) out.left_out.add(1, object.key.substr(root_size));
    if (is_image_name(name)) out.images.push_back(std::move(object));
  }
  std::sort(out.images.begin(), out.images.end(),
            [](const auto& a, const auto& b) { return folder_and_name(a.key) < folder_and_name(b.key); });
  return out;
} catch (const std::bad_alloc&) {
  return {fail(ErrorCode::kNotEnoughMemory, url + ": no memory for its listing"), {}, {}};
}

}  // namespace

Result<std::shared_ptr<const Source>> open_url_folder(const std::string& url,
                                                      const std::shared_ptr<const remote::Remote>& remote) {
  std::string root = url;
  while (root.ends_with('/')) root.pop_back();
  const auto refuse = [&root](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("image folder {}: {}", root, what));
  };
  const auto top = remote->list(root + "/", false);
  if (!top) return fail(top.error());
  const std::string prefix = remote::s3_name(root + "/").key;
  std::vector<std::string> classes;
  for (const std::string& folder : top->prefixes)
    classes.push_back(folder.substr(prefix.size(), folder.size() - prefix.size() - 1));
  std::sort(classes.begin(), classes.end());
  if (classes.empty())
    return refuse(
        fmt::format("holds {} objects but no class folders; give each class one, as in {}/cat/1.jpg",
                    top->objects.size(), root));

  auto column = std::make_unique<UrlColumn>(SourceField{}, root, remote);
  ClassFolders out{
      .root = root, .images = {}, .labels = {}, .classes = {}, .empty = {}, .left_out = {}, .strays = {}};
  for (const auto& object : top->objects)
    if (is_image_name(object.key)) out.strays.push_back(object.key.substr(prefix.size()));
  // A few classes at a time, because listings are larger than what is kept of them.
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t begin = 0; begin < classes.size(); begin += kAtOnce) {
    std::vector<Found> found(std::min(kAtOnce, classes.size() - begin));
    for_each_at_once(
        found.size(),
        [&](std::size_t i) {
          found[i] = list_class(fmt::format("{}/{}/", root, classes[begin + i]), prefix.size(), *remote);
        },
        remote->connections());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i].listed) return fail(std::move(found[i].listed.error()));
      for (const auto& image : found[i].images) {
        column->add(std::string_view(image.key).substr(prefix.size()), image.bytes, image.tag);
        out.labels.push_back(static_cast<std::uint32_t>(begin + i));
      }
      out.left_out.add(found[i].left_out.count, found[i].left_out.first);
      if (found[i].images.empty()) out.empty.push_back(classes[begin + i]);
    }
  }
  out.images = std::move(column);
  out.classes = std::move(classes);
  return make_class_folders(std::move(out));
}

}  // namespace headrace::server::source
