#include "server/source/remote/url_column.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <utility>

#include "server/remote/url.h"
#include "server/source/files/at_once.h"
#include "server/source/size_sample.h"

namespace headrace::server::source {
namespace {

std::uint64_t hash_of_tag(std::string_view tag) {
  return tag.empty() ? 0 : XXH3_64bits(tag.data(), tag.size());
}

}  // namespace

UrlColumn::UrlColumn(SourceField field, std::string root, std::shared_ptr<const remote::Remote> remote)
    : field_(std::move(field)),
      root_(std::move(root)),
      shown_(remote::shown(root_)),
      remote_(std::move(remote)) {}

void UrlColumn::add(std::string_view path, std::uint64_t bytes, std::string_view tag) {
  entries_.push_back({pool_.size(), bytes, hash_of_tag(tag)});
  pool_.append(path).push_back('\0');
}

void UrlColumn::check(const std::function<void(std::uint64_t, std::string_view)>& wrong) {
  const SizeSample sample(size());
  const std::uint64_t count = std::min(sample.size(), kChecked);
  std::vector<std::optional<Error>> errors(count);
  std::atomic<bool> down{false};  // one unreachable server is enough to wait for
  const auto row_of = [&](std::uint64_t i) { return sample.row(i * sample.size() / count); };
  for_each_at_once(
      count,
      [&](std::size_t i) {
        if (down) return;
        Entry& entry = entries_[row_of(i)];
        try {
          auto found = remote_->stat(remote::below(root_, pool_.data() + entry.offset));
          if (!found) {
            down = down || found.error().code == ErrorCode::kTransientIo;
            errors[i] = std::move(found.error());
            return;
          }
          entry.bytes = found->bytes;
          entry.tag = hash_of_tag(found->tag);
        } catch (const std::bad_alloc&) {
          errors[i] = Error{ErrorCode::kNotEnoughMemory, "no memory to read it"};
        }
      },
      remote_->connections());
  for (std::uint64_t i = 0; i < count; ++i)
    if (errors[i]) wrong(row_of(i), errors[i]->message);
}

Result<void> UrlColumn::finish() {
  pool_.shrink_to_fit();
  entries_.shrink_to_fit();
  return {};
}

Result<void> UrlColumn::read(std::uint64_t row, Item& out) const {
  const Entry& entry = entries_.at(row);
  const std::string url = remote::below(root_, path(row));
  const auto got = remote_->fetch(url, max_bytes_, out.storage);
  if (!got) return fail(got.error());
  const bool grown = entry.bytes != kUnknown && entry.bytes != got->bytes;
  if (grown || (entry.tag != 0 && !got->tag.empty() && entry.tag != hash_of_tag(got->tag)))
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("{}: {} since the dataset was opened; objects must stay as they are while they are "
                    "served: restore it if it is needed, then restart the server",
                    remote::shown(url),
                    grown ? fmt::format("has {} bytes, had {}; it was changed", got->bytes, entry.bytes)
                          : "it was changed"));
  out.bytes = out.storage;
  out.pixels = {};
  return {};
}

std::string UrlColumn::name(std::uint64_t row) const {
  return remote::shown(path(row));
}

void UrlColumn::add_to(Fingerprint& fingerprint) const {
  const SizeSample sample(size());
  for (std::uint64_t row = 0; row < entries_.size(); ++row) {
    fingerprint.add(std::string_view(path(row)));
    if (entries_[row].bytes != kUnknown && sample.index_of(row)) fingerprint.add(entries_[row].bytes);
  }
  fingerprint.add(std::uint64_t{field_.mask}).add(static_cast<std::uint64_t>(field_.scale));
}

}  // namespace headrace::server::source
