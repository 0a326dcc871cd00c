#include "server/source/files/folder_walk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "server/source/files/folder_entries.h"

namespace headrace::server::source {
namespace {

using Identity = std::pair<dev_t, ino_t>;

/// In lower case, without the dot; empty if there is none.
std::string extension(std::string_view name) {
  const auto dot = name.rfind('.');
  std::string out(dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1));
  for (auto& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// Whether it names a set and nothing else: "train", "Val", "test2017".
bool is_set_name(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kSets{"train",      "training", "val",     "valid",
                                                         "validation", "test",     "testing", "eval"};
  std::string word(name.substr(0, name.find_last_not_of("0123456789") + 1));
  for (auto& c : word)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::find(kSets.begin(), kSets.end(), word) != kSets.end();
}

Result<void> take(int folder_fd, const dirent& entry, const std::function<std::string()>& shown,
                  Entries& out) {
  std::string name = entry.d_name;
  const bool image = is_image_name(name);
  mode_t kind = DTTOIF(entry.d_type);
  if (entry.d_type == DT_LNK || entry.d_type == DT_UNKNOWN) {
    struct stat status {};
    if (::fstatat(folder_fd, name.c_str(), &status, 0) != 0) {
      if (!image) return {};  // a dangling link beside the images is harmless
      return tl::make_unexpected(scan_error(fmt::format("file {}/{}", shown(), name), errno));
    }
    kind = status.st_mode;
  }
  if (S_ISDIR(kind)) {
    out.folders.push_back(std::move(name));
  } else if (image && !S_ISREG(kind)) {
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}/{} has an image's name but is not a regular file; remove it", shown(), name));
  } else if (image) {
    out.images.push_back(std::move(name));
  } else if (S_ISREG(kind)) {
    out.left_out.add(is_left_out_name(name), name);
  }
  return {};
}

Result<void> walk_into(int root_fd, const std::string& path, const std::string& root,
                       std::vector<Identity>& above, std::vector<FoundFolder>& out, LeftOut& left_out) {
  struct stat status {};
  if (::fstatat(root_fd, path.c_str(), &status, 0) != 0)
    return tl::make_unexpected(scan_error(fmt::format("folder {}/{}", root, path), errno));
  const Identity self{status.st_dev, status.st_ino};
  if (std::find(above.begin(), above.end(), self) != above.end())
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("folder {}/{} leads back to a folder that holds it; remove this link", root, path));
  auto entries = list_folder(root_fd, path, root);
  if (!entries) return fail(std::move(entries.error()));
  out.push_back({path, std::move(entries->images)});
  left_out.add(entries->left_out.count, path + "/" + entries->left_out.first);
  above.push_back(self);
  for (const auto& folder : entries->folders) {
    if (auto r = walk_into(root_fd, fmt::format("{}/{}", path, folder), root, above, out, left_out); !r)
      return r;
  }
  above.pop_back();
  return {};
}

}  // namespace

Error scan_error(const std::string& what, int error) {
  const char* remedy = "see that the path is right and the disk is mounted";
  auto code = ErrorCode::kDatasetInvalid;
  switch (error) {
    case EACCES:
    case EPERM:
      remedy = "give this user the right to read it";
      break;
    case ENOENT:
      remedy = "remove the link that leads nowhere, or put back what it names";
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      remedy = "raise the limit (ulimit -n, memory)";
      code = ErrorCode::kEnvironment;
      break;
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
      code = ErrorCode::kTransientIo;
      break;
    default:
      break;
  }
  return {code, fmt::format("{}: {}; {}", what, std::strerror(error), remedy)};
}

void LeftOut::add(std::uint64_t more, const std::string& name) {
  if (more == 0) return;
  count += more;
  if (first.empty() || name < first) first = name;
}

std::string LeftOut::warning(const std::string& root) const {
  if (count == 0) return {};
  return fmt::format(
      "image folder {}: {} file{} left out, for example {}: ppm, bmp, pgm, tif, tiff and webp are not read; "
      "convert them, or expect fewer samples than torchvision's ImageFolder finds",
      root, count, count == 1 ? " is" : "s are", first);
}

Error empty_classes(const std::string& root, std::vector<std::string> empty, std::size_t total) {
  const auto count = empty.size();
  if (count > 10) empty.resize(10);
  return {ErrorCode::kDatasetInvalid,
          fmt::format("image folder {}: {} of {} class folders hold no .jpg, .jpeg or .png: {}{}; remove "
                      "them, or add images (files of other formats must be converted); if these are not "
                      "classes, point `path` at the folder that contains the class folders",
                      root, count, total, fmt::join(empty, ", "), count > 10 ? ", ..." : "")};
}

std::string strays_warning(const std::string& root, const std::vector<std::string>& strays) {
  if (strays.empty()) return {};
  return fmt::format(
      "image folder {}: {} image{} outside the class folders {} left out, for example {}; move {} into a "
      "class folder",
      root, strays.size(), strays.size() == 1 ? "" : "s", strays.size() == 1 ? "is" : "are", strays.front(),
      strays.size() == 1 ? "it" : "them");
}

std::string classes_warning(const std::string& root, const std::vector<std::string>& classes) {
  if (classes.size() == 1)
    return fmt::format(
        "image folder {0}: has one class only, `{1}`; if the classes are the folders in {0}/{1}, point "
        "`path` "
        "at that",
        root, classes.front());
  std::vector<std::string> sets;
  std::copy_if(classes.begin(), classes.end(), std::back_inserter(sets), is_set_name);
  // A single such name may well be a class: "train" can mean railways.
  if (sets.size() < 2) return {};
  return fmt::format(
      "image folder {0}: {1} look like sets but are read as classes; point `path` at the folder "
      "that holds the class folders, as in {0}/{2}, and give each set a source of its own",
      root, fmt::join(sets, ", "), sets.front());
}

std::string joined(std::string first, const std::string& second) {
  if (!first.empty() && !second.empty()) first += "; ";
  return first + second;
}

bool is_image_name(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kRead{"jpg", "jpeg", "png"};
  return std::find(kRead.begin(), kRead.end(), extension(name)) != kRead.end();
}

bool is_left_out_name(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kLeftOut{"ppm", "bmp", "pgm", "tif", "tiff", "webp"};
  return std::find(kLeftOut.begin(), kLeftOut.end(), extension(name)) != kLeftOut.end();
}

Result<Entries> list_folder(int root_fd, const std::string& path, const std::string& shown_root) {
  const auto shown = [&] { return path == "." ? shown_root : shown_root + "/" + path; };
  Entries out;
  Result<void> taken;
  const int error = each_entry(root_fd, path, [&](int folder_fd, const dirent& entry) {
    taken = take(folder_fd, entry, shown, out);
    return taken.has_value();
  });
  if (error != 0) return tl::make_unexpected(scan_error(fmt::format("folder {}", shown()), error));
  if (!taken) return fail(std::move(taken.error()));
  std::sort(out.folders.begin(), out.folders.end());
  std::sort(out.images.begin(), out.images.end());
  return out;
}

Result<std::vector<FoundFolder>> walk(int root_fd, const std::string& path, const std::string& shown_root,
                                      LeftOut& left_out) {
  std::vector<FoundFolder> out;
  std::vector<Identity> above;
  if (auto r = walk_into(root_fd, path, shown_root, above, out, left_out); !r)
    return fail(std::move(r.error()));
  std::sort(out.begin(), out.end(),
            [](const FoundFolder& a, const FoundFolder& b) { return a.path < b.path; });
  return out;
}

}  // namespace headrace::server::source
