#include "server/source/formats/idx.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/described/names.h"
#include "server/remote/url.h"
#include "server/source/formats/pixel_table.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

struct Idx {
  std::vector<std::uint8_t> bytes;
  std::vector<std::uint32_t> dims;
  std::size_t header = 0;
};

/// The size that a file with these first bytes should have; if its header is wrong, that of the header.
std::uint64_t most_of_idx(std::span<const std::uint8_t> begin) {
  const std::size_t header = begin.size() < 4 ? 4 : 4 + 4 * std::size_t{begin[3]};
  if (begin.size() < header || header == 4) return header;
  std::uint64_t values = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    const std::uint64_t size = std::uint32_t{begin[at]} << 24 | std::uint32_t{begin[at + 1]} << 16 |
                               std::uint32_t{begin[at + 2]} << 8 | begin[at + 3];
    if (__builtin_mul_overflow(values, size, &values)) return header;
  }
  // One more, so that the error can say that too many follow.
  return header + std::min(values, ~std::uint64_t{0} - header - 1) + 1;
}

/// The header is 0 0 type rank, then rank sizes of 4 bytes, big-endian; the values follow.
Result<Idx> read_idx(const std::filesystem::path& path, const RemotePtr& remote, std::string_view shape,
                     std::size_t least_rank, std::size_t most_rank) {
  auto bytes = read_whole(path, remote, most_of_idx);
  if (!bytes) return fail(bytes.error());
  const auto refuse = [&path](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", remote::shown(path.string()), what));
  };
  Idx idx{std::move(*bytes), {}, 4};
  if (idx.bytes.size() < 4 || idx.bytes[0] != 0 || idx.bytes[1] != 0)
    return refuse("is not an IDX file (it does not begin with 0 0)");
  const std::size_t rank = idx.bytes[3];
  if (idx.bytes[2] != kUnsignedByte)
    return refuse(
        fmt::format("holds values of IDX type 0x{:02x}; unsigned bytes (0x08) are read", idx.bytes[2]));
  if (rank < least_rank || rank > most_rank)
    return refuse(fmt::format("expected {}, found {} dimension{}: are images and labels exchanged?", shape,
                              rank, rank == 1 ? "" : "s"));
  idx.header = 4 + 4 * rank;
  if (idx.bytes.size() < idx.header) return refuse("is truncated within its header");
  std::uint64_t values = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::uint8_t* at = idx.bytes.data() + 4 + 4 * d;
    idx.dims.push_back(std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 |
                       at[3]);
    if (__builtin_mul_overflow(values, std::uint64_t{idx.dims.back()}, &values))
      return refuse("its header's sizes are invalid");
  }
  const std::uint64_t have = idx.bytes.size() - idx.header;
  if (have != values)
    return refuse(fmt::format("its header says {} = {} values, but {} bytes follow; {}",
                              fmt::join(idx.dims, " x "), values, have,
                              have < values ? "it is truncated: fetch it again"
                                            : "the header does not match the data: fetch it again"));
  return idx;
}

}  // namespace

Result<std::shared_ptr<const Source>> open_idx(const IdxOptions& options) {
  auto images = read_idx(options.images, options.remote, "count x height x width (or x 3)", 3, 4);
  if (!images) return fail(images.error());
  auto labels = read_idx(options.labels, options.remote, "count", 1, 1);
  if (!labels) return fail(labels.error());
  const auto refuse = [&options](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: {}", remote::shown(options.images.string()), what));
  };
  const auto& dims = images->dims;
  const std::uint32_t channels = dims.size() == 4 ? dims[3] : 1;
  if (channels != 1 && channels != 3)
    return refuse(fmt::format("images have {} channels; 1 or 3 are read", channels));
  if (dims[0] == 0) return refuse("holds no image");
  if (dims[0] != labels->dims[0])
    return refuse(fmt::format("holds {} images, but {} holds {} labels: they do not belong together", dims[0],
                              remote::shown(options.labels.string()), labels->dims[0]));
  if (std::max(dims[1], dims[2]) > decode::kMaxSide || std::min(dims[1], dims[2]) == 0)
    return refuse(fmt::format("images of {} x {} pixels", dims[2], dims[1]));

  PixelTable table;
  table.shape = {.width = static_cast<std::int32_t>(dims[2]),
                 .height = static_cast<std::int32_t>(dims[1]),
                 .channels = static_cast<std::int32_t>(channels),
                 .planar = false};
  table.fingerprint = hash_of(labels->bytes, hash_of(images->bytes, 0x494458));
  table.labels.assign(labels->bytes.begin() + static_cast<std::ptrdiff_t>(labels->header),
                      labels->bytes.end());
  table.classes = options.classes.empty() ? numbered_classes(table.labels) : options.classes;
  const auto stray = std::find_if(table.labels.begin(), table.labels.end(),
                                  [&](std::uint8_t label) { return label >= table.classes.size(); });
  if (stray != table.labels.end())
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: label {} of image {} has no class: `classes` names {}",
                            remote::shown(options.labels.string()), *stray, stray - table.labels.begin(),
                            table.classes.size()));
  const std::size_t stride = std::size_t{dims[1]} * dims[2] * channels;
  table.files.push_back(
      {remote::name_of(options.images.string()), std::move(images->bytes), images->header, stride, dims[0]});
  return make_pixel_source(std::move(table));
}

described::Description<IdxOptions> IdxOptions::description() {
  using Self = IdxOptions;
  return {"idx",
          "Images and labels in IDX files, plain or gzipped: MNIST and similar sets.",
          {described::required("images", &Self::images, described::data_path(),
                               "Such as train-images-idx3-ubyte.gz."),
           described::required("labels", &Self::labels, described::data_path(),
                               "Such as train-labels-idx1-ubyte.gz."),
           described::without_default(described::key("classes", &Self::classes, described::class_names()))}};
}

namespace types {
SourceType idx() {
  return source_type<IdxOptions>(
      {.network = true, .io = false, .in_memory = "an idx source is in memory already"},
      [](const IdxOptions& options, const OpenContext& context) {
        IdxOptions all = options;
        all.remote = context.remote;
        return open_idx(all);
      });
}
}  // namespace types

}  // namespace headrace::server::source
