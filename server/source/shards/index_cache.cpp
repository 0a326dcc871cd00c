#include "server/source/shards/index_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "clientlib/base/new_file.h"
#include "clientlib/base/trusted_path.h"
#include "server/remote/url.h"
#include "server/source/fingerprint.h"
#include "server/source/labels.h"
#include "server/store/field_json.h"

namespace headrace::server::source {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Increase it with each change of the file format or of the meaning of an index.
constexpr int kVersion = 1;
/// File format: magic, length of the head, head (JSON: the key, then a line per shard), each shard's samples
/// and names, xxh3 of everything before. In the machine's byte order.
constexpr std::array<char, 8> kIndexMagic{'H', 'R', 'S', 'H', 'A', 'R', 'D', 'S'};

void add(Fingerprint& hash, const void* data, std::size_t size) {
  hash.add(std::span(static_cast<const std::uint8_t*>(data), size));
}

class Reader {
 public:
  explicit Reader(UniqueFd file) : file_(std::move(file)) {
    struct stat status {};
    if (::fstat(file_.get(), &status) == 0) left_ = static_cast<std::uint64_t>(status.st_size);
  }

  [[nodiscard]] std::uint64_t left() const { return left_; }
  /// False, without an allocation, if fewer are left.
  template <class Values>
  bool read(Values& out, std::uint64_t count) {
    constexpr std::size_t kSize = sizeof(typename Values::value_type);
    if (count > left_ / kSize) return false;
    out.resize(static_cast<std::size_t>(count));
    return read_bytes(out.data(), out.size() * kSize);
  }
  bool read_bytes(void* out, std::size_t size) {
    if (size > left_) return false;
    for (std::size_t done = 0; done < size;) {
      const ssize_t got = ::read(file_.get(), static_cast<char*>(out) + done, size - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      done += static_cast<std::size_t>(got);
    }
    left_ -= size;
    add(hash_, out, size);
    return true;
  }
  [[nodiscard]] std::uint64_t hash() const { return hash_.value(); }

 private:
  UniqueFd file_;
  std::uint64_t left_ = 0;
  Fingerprint hash_;
};

class Writer {
 public:
  /// Readable by all users: an index that root made is shared by them.
  explicit Writer(const fs::path& file) : file_(NewFile::create(AT_FDCWD, file.string(), 0644)) {}

  void write(const void* data, std::size_t size) {
    written_ = written_ && file_ && file_->write(data, size) == 0;
    add(hash_, data, size);
  }
  bool end() {
    const std::uint64_t hash = hash_.value();
    write(&hash, sizeof hash);
    return written_ && file_->replace() == 0;
  }

 private:
  tl::expected<NewFile, int> file_;
  bool written_ = true;
  Fingerprint hash_;
};

/// This user's folder for caches, or empty.
fs::path cache_home() {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody here sets variables
    return value != nullptr && value[0] == '/' ? fs::path(value) : fs::path();
  };
  fs::path home = absolute("XDG_CACHE_HOME");
  if (home.empty() && !absolute("HOME").empty()) home = absolute("HOME") / ".cache";
  return home.empty() ? home : home / "headrace";
}

std::string digest(const std::string& text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

/// Whether every number is within its bounds; later reads by it stay within the shard.
bool is_sound(const ShardIndex& index, std::uint64_t shard_bytes, std::size_t extensions,
              std::int64_t label_limit) {
  std::uint32_t before = 0;
  for (const ShardSample& sample : index.samples) {
    if (sample.offset > shard_bytes || sample.bytes > shard_bytes - sample.offset) return false;
    if (sample.name_end < before || sample.name_end > index.names.size()) return false;
    if (sample.extension >= extensions || sample.label >= label_limit) return false;
    before = sample.name_end;
  }
  return true;
}

}  // namespace

IndexCache::IndexCache(const fs::path& folder, const std::vector<ShardStamp>& shards, const ShardRule& rule)
    : images_(rule.images), label_limit_(label_limit(rule.classes)) {
  json names = json::array(), stamps = json::array();
  for (const ShardStamp& shard : shards) {
    names.push_back(shard.name);
    stamps.push_back({shard.name, shard.bytes, shard.modified_ns});
    if (!shard.tag.empty()) stamps.back().push_back(shard.tag);
    shard_bytes_.push_back(shard.bytes);
  }
  const json how = {rule.images, rule.label, label_limit_};
  const auto text = [](const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  key_ = text({kVersion, how, stamps});
  // Beside the shards, the key omits the folder, which may be mounted elsewhere later.
  if (!remote::is_url(folder.string()))
    files_.push_back(folder / fmt::format(".headrace-{}.index", digest(text({how, names}))));
  home_ = cache_home();
  if (!home_.empty())
    files_.push_back(home_ / fmt::format("{}.index", digest(text({folder.string(), how, names}))));
}

std::optional<std::vector<ShardIndex>> IndexCache::load() const {
  const auto load_from = [&](const fs::path& file) -> std::optional<std::vector<ShardIndex>> {
    auto opened = open_trusted_file(AT_FDCWD, file.string(), O_RDONLY);
    if (!opened) return std::nullopt;
    Reader reader(std::move(*opened));
    std::array<char, 8> magic{};
    std::uint64_t head_bytes = 0;
    std::string text;
    if (!reader.read_bytes(magic.data(), magic.size()) || magic != kIndexMagic ||
        !reader.read_bytes(&head_bytes, sizeof head_bytes) || !reader.read(text, head_bytes))
      return std::nullopt;
    const json head = store::parse_description(text);
    if (!head.is_object() || head.at("key").get_ref<const std::string&>() != key_) return std::nullopt;
    const json& shards = head.at("shards");
    if (shards.size() != shard_bytes_.size()) return std::nullopt;
    std::vector<ShardIndex> out(shards.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!reader.read(out[i].samples, shards[i].at("samples").get<std::uint64_t>()) ||
          !reader.read(out[i].names, shards[i].at("names").get<std::uint64_t>()) ||
          !is_sound(out[i], shard_bytes_[i], images_.size(), label_limit_))
        return std::nullopt;
      out[i].fingerprint = fingerprint_of(out[i], images_);
      if (out[i].fingerprint != shards[i].at("fingerprint").get<std::uint64_t>()) return std::nullopt;
      for (const auto& [extension, count] : shards[i].at("left_out").items())
        out[i].leave_out(extension, count.get<std::uint64_t>());
    }
    const std::uint64_t expected = reader.hash();
    std::uint64_t hash = 0;
    if (!reader.read_bytes(&hash, sizeof hash) || hash != expected || reader.left() != 0) return std::nullopt;
    return out;
  };
  for (const fs::path& file : files_) {
    try {
      if (auto shards = load_from(file)) return shards;
    } catch (const json::exception&) {  // the head has another format
    } catch (const std::invalid_argument&) {
    }
  }
  return std::nullopt;
}

void IndexCache::store(const std::vector<ShardIndex>& shards) const {
  json lines = json::array();
  for (const ShardIndex& shard : shards)
    lines.push_back({{"samples", shard.samples.size()},
                     {"names", shard.names.size()},
                     {"fingerprint", shard.fingerprint},
                     {"left_out", shard.left_out}});
  const json head = {{"key", key_}, {"shards", std::move(lines)}};
  const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);
  for (const fs::path& file : files_) {
    std::error_code ignored;
    if (file.parent_path() == home_) {
      fs::create_directories(home_.parent_path(), ignored);
      ::mkdir(home_.c_str(), 0700);
    }
    Writer writer(file);
    writer.write(kIndexMagic.data(), kIndexMagic.size());
    const std::uint64_t head_bytes = text.size();
    writer.write(&head_bytes, sizeof head_bytes);
    writer.write(text.data(), text.size());
    for (const ShardIndex& shard : shards) {
      writer.write(shard.samples.data(), shard.samples.size() * sizeof(ShardSample));
      writer.write(shard.names.data(), shard.names.size());
    }
    if (writer.end()) return;
  }
}

}  // namespace headrace::server::source
