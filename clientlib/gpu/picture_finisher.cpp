#include "clientlib/gpu/picture_finisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace::gpu {
namespace {

TransformOutput output_of(const FieldSpec& spec, const DevicePictures& pictures) {
  const auto side = [&](std::size_t dim) { return static_cast<std::int32_t>(spec.shape[dim]); };
  TransformOutput output;
  output.height = side(pictures.interleaved ? 0 : 1);
  output.width = side(pictures.interleaved ? 1 : 2);
  output.channels = side(pictures.interleaved ? 2 : 0);
  output.dtype = spec.dtype;
  output.layout = pictures.interleaved ? pixels::PixelLayout::kNhwc : pixels::PixelLayout::kNchw;
  output.mean = pictures.mean;
  output.std = pictures.std;
  return output;
}

}  // namespace

Result<PictureFinisher> PictureFinisher::open(const StreamInfo& info, std::shared_ptr<Device> device) {
  PictureFinisher finisher(std::move(device));
  for (const DevicePictures& pictures : info.on_device) {
    const FieldSpec& spec = info.fields.at(pictures.field);
    const TransformOutput output = output_of(spec, pictures);
    auto transform = DeviceTransform::open(*finisher.device_, output);
    if (!transform) return fail(transform.error());
    const std::uint64_t finished = static_cast<std::uint64_t>(output.height) *
                                   static_cast<std::uint64_t>(output.width) * pictures.channels;
    const pixels::PictureRows ring{info.batch_size, pictures.row_bytes, finished};
    if (ring.bytes() < ring.pool())
      return fail(
          ErrorCode::kBadMessage,
          fmt::format("stream '{}': field '{}' has {} bytes for a row, which are too few for a picture",
                      info.name, spec.name, pictures.row_bytes));
    Field field{pictures.field,
                spec.name,
                ring,
                static_cast<std::int32_t>(pictures.channels),
                output.row_bytes(),
                std::move(*transform),
                nullptr,
                {},
                {}};
    auto memory = finisher.device_->allocate(field.picture_bytes());
    if (!memory) return fail(memory.error());
    field.pictures = *memory;
    finisher.fields_.push_back(std::move(field));
  }
  return finisher;
}

PictureFinisher::~PictureFinisher() {
  if (device_ == nullptr) return;
  device_->synchronise();
  for (const Field& field : fields_) device_->free(field.pictures);
}

Result<void> PictureFinisher::take(const BatchView& batch, std::vector<Transfer>& out) {
  for (Field& field : fields_)
    if (auto taken = field.take(*batch.field(field.name), out); !taken) return taken;
  return {};
}

// The table is the server's to write to, whatever it is: each row is read once.
Result<void> PictureFinisher::Field::take(const FieldView& view, std::vector<Transfer>& out) {
  const std::uint64_t begin = table_bytes(), end = ring.bytes();
  const auto rows = static_cast<std::size_t>(view.shape[0]);
  places.clear();
  steps.clear();
  const auto add = [&](std::uint64_t from, std::uint64_t bytes) {
    out.push_back({view.data + from, pictures + (from - begin), bytes});
  };
  // Of each part what lies between its first picture's begin and its last one's end: one copy of each.
  std::uint64_t pool_end = ring.pool(), finished_begin = ring.pool(), finished_end = begin;
  for (std::size_t row = 0; row < rows; ++row) {
    pixels::PictureRow picture;
    std::memcpy(&picture, view.data + row * sizeof picture, sizeof picture);
    const auto side = [](std::int32_t value) { return static_cast<std::uint64_t>(std::max(value, 0)); };
    const std::uint64_t bytes =
        side(picture.width) * side(picture.height) * static_cast<std::uint64_t>(channels);
    if (picture.offset < begin || picture.offset > end || bytes > end - picture.offset)
      return fail(
          ErrorCode::kInternal,
          fmt::format("field '{}', row {}: a picture of {} x {} pixels at {} lies outside of the {} bytes "
                      "of its field",
                      view.spec->name, row, picture.width, picture.height, picture.offset, end));
    if (picture.offset < ring.pool()) {
      if (bytes > ring.pool() - picture.offset)
        return fail(ErrorCode::kInternal,
                    fmt::format("field '{}', row {}: a finished picture of {} x {} pixels "
                                "is larger than its place",
                                view.spec->name, row, picture.width, picture.height));
      finished_begin = std::min(finished_begin, picture.offset);
      finished_end = std::max(finished_end, picture.offset + bytes);
    } else {
      pool_end = std::max(pool_end, picture.offset + bytes);
    }
    places.push_back({picture.offset - begin, picture.height, picture.width});
    steps.push_back(picture.steps);
  }
  if (finished_end > finished_begin) add(finished_begin, finished_end - finished_begin);
  if (pool_end > ring.pool()) add(ring.pool(), pool_end - ring.pool());
  return {};
}

Result<void> PictureFinisher::launch(std::byte* base, const BatchLayout& layout) {
  for (Field& field : fields_) {
    const PictureBatch pictures{field.pictures, field.picture_bytes(), field.places, field.channels};
    std::byte* const to = base + layout.fields[field.at].values;
    if (auto launched = field.transform.launch(
            pictures, field.steps, to, field.steps.size() * field.output_bytes, device_->copy_stream());
        !launched)
      return launched;
  }
  return {};
}

}  // namespace headrace::gpu
