// Tar files: members lie within the file and hold its bytes; their index as a shard of samples.
// Input: flags (1: correct the headers' checksums; 2: labels from JSON; 4: no labels), then the file.
#include "server/source/shards/tar_reader.h"

#include <cstdio>
#include <vector>

#include "server/source/shards/shard_index.h"
#include "tests/fuzz/fuzz.h"

namespace headrace::server::source {
namespace {

using File = std::vector<std::uint8_t>;

/// A changed header would otherwise be refused for its checksum alone.
void correct_checksums(File& file) {
  constexpr std::size_t kBlock = 512, kMagic = 257, kSum = 148, kSumBytes = 8;
  for (std::size_t at = 0; at + kBlock <= file.size(); at += kBlock) {
    if (std::memcmp(file.data() + at + kMagic, "ustar", 5) != 0) continue;
    std::memset(file.data() + at + kSum, ' ', kSumBytes);
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += file[at + i];
    char text[kSumBytes + 1];
    std::snprintf(text, sizeof text, "%06o", sum);
    std::memcpy(file.data() + at + kSum, text, kSumBytes - 1);
  }
}

Result<TarReader> open(const File& file) {
  const ReadAt read = [&file](std::uint64_t offset, std::span<std::uint8_t> out) -> Result<std::size_t> {
    const auto at = static_cast<std::size_t>(std::min<std::uint64_t>(offset, file.size()));
    const std::size_t count = std::min(out.size(), file.size() - at);
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(at), count, out.begin());
    return count;
  };
  return TarReader::open(read, file.size(), "x.tar");
}

void require_named(const Error& error) {
  require(error.code == ErrorCode::kDatasetInvalid && !error.message.empty(), "a file is refused by name");
}

void read_members(const File& file) {
  auto tar = open(file);
  if (!tar) return require_named(tar.error());
  TarMember member;
  for (int i = 0;; ++i) {
    const auto more = tar->next(member);
    if (!more) return require_named(more.error());
    if (!*more) return;
    if (!member.file) continue;
    require(member.offset <= file.size() && member.bytes <= file.size() - member.offset,
            "a member is within its file");
    if (i % 2 == 0) continue;  // read by itself, as samples are
    const auto content = tar->content();
    if (!content) return require_named(content.error());
    if (*content != fuzz::text_of(fuzz::Bytes(file).subspan(member.offset, member.bytes)))
      break_contract("the content of " + member.name + " is not the file's bytes at " +
                     std::to_string(member.offset) + ", but " + std::to_string(content->size()) + " others");
  }
}

void read_shard(const File& file, const ShardRule& rule) {
  auto tar = open(file);
  if (!tar) return;
  Problems problems;
  const auto index = index_shard(std::move(*tar), "x.tar", rule, problems);
  if (!index) return require_named(index.error());
  if (!problems.none()) return require_named(problems.error(ErrorCode::kDatasetInvalid));
  for (std::size_t i = 0; i < index->samples.size(); ++i) {
    const ShardSample& sample = index->samples[i];
    require(sample.offset <= file.size() && sample.bytes <= file.size() - sample.offset,
            "a sample is within its file");
    require(sample.extension < rule.images.size() && !index->key(i).empty(),
            "a sample has a key and an image");
    require(rule.classes.empty() || sample.label < rule.classes.size(), "a label has a class");
  }
  require(index->fingerprint == fingerprint_of(*index, rule.images), "an index has its fingerprint");
}

}  // namespace
}  // namespace headrace::server::source

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::source;
  fuzz::Input input(data, size);
  const auto flags = input.take<std::uint8_t>();
  const auto rest = input.rest();
  File file(rest.begin(), rest.end());
  if (flags & 1) correct_checksums(file);
  read_members(file);
  ShardRule rule{{"jpg", "jpeg", "png"}, flags & 4 ? "none" : flags & 2 ? "json.label" : "cls", {}};
  if (flags & 8) rule.classes = {"cat", "dog"};
  read_shard(file, rule);
  return 0;
}
