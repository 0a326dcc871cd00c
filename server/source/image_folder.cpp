#include "server/source/image_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "server/source/folder_walk.h"

namespace headrace::server::source {
namespace {

struct Entry {
  std::uint64_t offset;  // of the zero-terminated relative path in the pool
  std::uint64_t bytes;
  std::uint32_t length;
  std::uint32_t label;
};

class ImageFolder final : public Source {
 public:
  ImageFolder(std::string root, int root_fd, ReadPolicy policy)
      : root_(std::move(root)), root_fd_(root_fd), policy_(std::move(policy)) {}
  ~ImageFolder() override { ::close(root_fd_); }
  ImageFolder(const ImageFolder&) = delete;
  ImageFolder& operator=(const ImageFolder&) = delete;

  [[nodiscard]] std::uint64_t size() const override { return entries_.size(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    const Entry& e = entries_.at(index);
    Item& image = out.item(0);
    auto done = read_file(root_fd_, pool_.data() + e.offset, e.bytes, policy_, root_, image.storage);
    image.bytes = image.storage;
    return done;
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return entries_.at(index).label; }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    const Entry& e = entries_.at(index);
    return pool_.substr(e.offset, e.length);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::string warning() const override;

  Result<void> index();

 private:
  Result<std::uint64_t> add_class(const std::string& name, std::uint32_t label);
  [[nodiscard]] std::uint64_t compute_fingerprint() const;

  const std::string root_;
  const int root_fd_;
  const ReadPolicy policy_;
  std::string pool_;
  std::vector<Entry> entries_;
  std::vector<std::string> classes_;
  const std::vector<SourceField> fields_{SourceField{}};
  std::uint64_t fingerprint_ = 0;
  LeftOut left_out_;
};

std::string ImageFolder::warning() const {
  if (left_out_.count == 0) return {};
  return fmt::format(
      "image folder {}: {} files are left out, the first is {}: ppm, bmp, pgm, tif, tiff and webp are not "
      "read; convert them, or count with fewer samples than torchvision's ImageFolder finds",
      root_, left_out_.count, left_out_.first);
}

Result<std::uint64_t> ImageFolder::add_class(const std::string& name, std::uint32_t label) {
  auto folders = walk(root_fd_, name, root_, left_out_);
  if (!folders) return fail(std::move(folders.error()));
  std::uint64_t added = 0;
  for (const auto& folder : *folders) {
    for (const auto& file : folder.files) {
      const auto offset = pool_.size();
      pool_.append(folder.path).append("/").append(file.name);
      entries_.push_back({offset, file.bytes, static_cast<std::uint32_t>(pool_.size() - offset), label});
      pool_.push_back('\0');
      ++added;
    }
  }
  return added;
}

Result<void> ImageFolder::index() {
  auto top = list_folder(root_fd_, ".", root_);
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
  std::vector<std::string> empty;
  for (std::uint32_t label = 0; label < classes_.size(); ++label) {
    const auto added = add_class(classes_[label], label);
    if (!added) return fail(added.error());
    if (*added == 0) empty.push_back(classes_[label]);
  }
  if (!empty.empty()) {
    const auto total = empty.size();
    if (total > 10) empty.resize(10);
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format(
            "image folder {}: {} of {} class folders hold no .jpg, .jpeg or .png: {}{}; remove them, or "
            "add images",
            root_, total, classes_.size(), fmt::join(empty, ", "), total > 10 ? ", ..." : ""));
  }
  pool_.shrink_to_fit();
  entries_.shrink_to_fit();
  fingerprint_ = compute_fingerprint();
  return {};
}

std::uint64_t ImageFolder::compute_fingerprint() const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const auto& e : entries_) {
    XXH3_64bits_update(state.get(), pool_.data() + e.offset, e.length + std::size_t{1});
    const std::uint64_t numbers[2] = {e.bytes, e.label};
    XXH3_64bits_update(state.get(), numbers, sizeof numbers);
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace

Result<std::shared_ptr<const Source>> open_image_folder(const std::filesystem::path& root,
                                                        const ImageFolderOptions& options) {
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
  auto folder = std::make_shared<ImageFolder>(shown, fd, options.read);
  if (auto r = folder->index(); !r) return fail(std::move(r.error()));
  return folder;
}

}  // namespace headrace::server::source
