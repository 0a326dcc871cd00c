#include "server/source/formats/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "server/described/names.h"
#include "server/described/units.h"
#include "server/remote/url.h"
#include "server/source/fingerprint.h"
#include "server/source/labels.h"
#include "server/source/problems.h"
#include "server/source/source_type.h"

namespace headrace::server::source {
namespace {

constexpr std::size_t kMostDimensions = 7;  // six for a row, one for the sample
constexpr std::size_t kLongestName = 47;
constexpr const char* kLabel = "label";

/// An array with its field name in batches.
struct NamedArray {
  std::string field;
  NpyArray array;
};

template <class T>
std::int64_t value_at(const std::uint8_t* values, std::uint64_t index) {
  T value{};
  std::memcpy(&value, values + index * sizeof(T), sizeof(T));
  return value;
}

std::int64_t integer_at(const NpyArray& array, std::uint64_t index) {
  const std::uint8_t* values = array.values.view.data();
  switch (array.header.dtype) {
    case DType::kUInt8:
      return value_at<std::uint8_t>(values, index);
    case DType::kInt8:
      return value_at<std::int8_t>(values, index);
    case DType::kInt16:
      return value_at<std::int16_t>(values, index);
    case DType::kInt32:
      return value_at<std::int32_t>(values, index);
    default:
      return value_at<std::int64_t>(values, index);
  }
}

Result<std::vector<NamedArray>> open_arrays(const NpyOptions& options) {
  std::vector<NamedArray> out;
  for (const auto& [field, path] : options.files) {
    auto array = open_npy(path, options.remote);
    if (!array) return fail(std::move(array.error()));
    out.push_back({field, std::move(*array)});
  }
  if (!options.files.empty()) return out;
  std::vector<std::string> names;
  for (const auto& [field, name] : options.arrays) names.push_back(name);
  auto arrays = open_npz(options.npz, names, NpzLoad::kWhole, options.remote);
  if (!arrays) return fail(std::move(arrays.error()));
  if (arrays->empty())
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: holds no array", remote::shown(options.npz.string())));
  for (const auto& [field, name] : options.arrays) {
    const auto found = std::find_if(arrays->begin(), arrays->end(),
                                    [&wanted = name](const NpyArray& array) { return array.name == wanted; });
    out.push_back({field, *found});
  }
  if (!options.arrays.empty()) return out;
  for (NpyArray& array : *arrays) out.push_back({array.name, std::move(array)});
  std::sort(out.begin(), out.end(),
            [](const NamedArray& a, const NamedArray& b) { return a.field < b.field; });
  return out;
}

/// Every batch has fields of these names (headrace.Loader's `meta`).
constexpr std::array<std::string_view, 3> kTaken{"valid", "sample_index", "replaced"};

bool is_field_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

/// Checks the requirements on every field.
Result<void> check_arrays(const std::vector<NamedArray>& arrays) {
  const NamedArray& first = arrays.front();
  for (const auto& [field, array] : arrays) {
    const auto& shape = array.header.shape;
    if (std::count_if(arrays.begin(), arrays.end(),
                      [&same = field](const NamedArray& other) { return other.field == same; }) > 1)
      return refuse(array.shown, "is there twice; save it again with np.savez");
    if (std::find(kTaken.begin(), kTaken.end(), field) != kTaken.end())
      return refuse(array.shown,
                    fmt::format("a field cannot be called \"{}\", which each batch has of its own; "
                                "give it another name in `fields`",
                                field));
    if (!is_field_name(field))
      return refuse(array.shown,
                    fmt::format("a field cannot be called \"{}\" (1 to {} of a-z, 0-9 and _); give it "
                                "another name in `fields`, as in {{image: {}}}",
                                field, kLongestName, array.name));
    if (shape.empty())
      return refuse(array.shown, "is one number without a dimension; leave it out of `fields`");
    if (shape.size() > kMostDimensions)
      return refuse(array.shown, fmt::format("has {} dimensions, {}; up to {} are read: reshape it",
                                             shape.size(), shape_text(shape), kMostDimensions));
    if (shape[0] != first.array.header.shape[0])
      return refuse(
          array.shown,
          fmt::format("has {} samples (its first dimension), but {} has {}: they do not belong together",
                      shape[0], first.array.shown, first.array.header.shape[0]));
    if (shape[0] == 0) return refuse(array.shown, "has no samples");
    if (std::find(shape.begin(), shape.end(), 0) != shape.end())
      return refuse(array.shown, fmt::format("has an empty dimension, {}; leave it out", shape_text(shape)));
  }
  return {};
}

Result<void> see_labels(const NpyArray& labels, const std::vector<std::string>& classes) {
  if (!is_integer(labels.header.dtype) || labels.header.shape.size() != 1)
    return refuse(
        labels.shown,
        fmt::format("is {} of {}: the field `label` is the class, one integer per sample; for other "
                    "targets take another name, such as `target`",
                    shape_text(labels.header.shape), name_of(labels.header.dtype)));
  for (std::uint64_t i = 0; i < labels.header.shape[0]; ++i) {
    const std::int64_t label = integer_at(labels, i);
    if (label < 0 || label >= label_limit(classes))
      return refuse(labels.shown, label_out_of_range(fmt::format("value {}", i), label, classes));
  }
  return {};
}

/// A field's array and the type of its rows.
struct NpyColumn {
  NpyArray array;
  SourceField field;
  decode::PixelShape pixels;  // width 0: values
  std::uint64_t row_bytes = 0;
};

NpyColumn column_of(NamedArray named, const std::optional<decode::PixelShape>& pixels) {
  const NpyHeader& header = named.array.header;
  NpyColumn out{.field = {.name = std::move(named.field)}, .row_bytes = header.data_bytes / header.shape[0]};
  if (pixels) {
    out.pixels = *pixels;
    out.field.content = Content::kPixels;
    out.field.channels = pixels->channels;
    out.field.height = pixels->height;
    out.field.width = pixels->width;
  } else {
    out.field.content = Content::kValues;
    out.field.dtype = header.dtype;
    out.field.shape.assign(header.shape.begin() + 1, header.shape.end());
  }
  out.array = std::move(named.array);
  return out;
}

/// Images in the order of `images`, then the other fields.
Result<std::vector<NpyColumn>> columns_of(std::vector<NamedArray> arrays,
                                          const std::optional<std::vector<std::string>>& images,
                                          const std::string& shown) {
  std::vector<NpyColumn> out;
  for (const std::string& image : images.value_or(std::vector<std::string>{"image"})) {
    const auto named = std::find_if(arrays.begin(), arrays.end(),
                                    [&](const NamedArray& other) { return other.field == image; });
    if (named == arrays.end() && !images) continue;
    if (named == arrays.end())
      return fail(ErrorCode::kDatasetInvalid,
                  fmt::format("{}: `images` names \"{}\", which is not a field", shown, image));
    const auto pixels = pixel_shape(named->array.header);
    if (!pixels && !images) continue;
    if (!pixels)
      return refuse(
          named->array.shown,
          fmt::format("expected images, uint8 of (n, h, w), (n, h, w, 1 or 3) or (n, 1 or 3, h, w); found "
                      "{} of {}",
                      name_of(named->array.header.dtype), shape_text(named->array.header.shape)));
    out.push_back(column_of(std::move(*named), pixels));
    arrays.erase(named);
  }
  for (NamedArray& named : arrays) out.push_back(column_of(std::move(named), std::nullopt));
  return out;
}

class NpySet final : public Source {
 public:
  NpySet(std::vector<NpyColumn> columns, std::optional<NpyArray> labels, std::vector<std::string> classes)
      : columns_(std::move(columns)),
        labels_(std::move(labels)),
        classes_(std::move(classes)),
        size_(columns_.front().array.header.shape[0]) {
    for (const NpyColumn& column : columns_) fields_.push_back(column.field);
    if (!labels_ || !classes_.empty()) return;
    std::int64_t most = 0;
    for (std::uint64_t i = 0; i < size_; ++i) most = std::max(most, integer_at(*labels_, i));
    classes_ = numbered_classes(most + 1);
  }

  [[nodiscard]] std::uint64_t size() const override { return size_; }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    for (std::size_t f = 0; f < columns_.size(); ++f) {
      const NpyColumn& column = columns_[f];
      Item& item = out.item(f);
      item.bytes = column.array.values.view.subspan(index * column.row_bytes, column.row_bytes);
      item.pixels = column.pixels;
    }
    return {};
  }
  bool view_samples(SampleView& view) const override {
    const std::size_t count = view.indices.size(), fields = columns_.size();
    view.pixels.clear();
    view.items.resize(count * fields);
    for (std::size_t f = 0; f < fields; ++f) {
      const NpyColumn& column = columns_[f];
      view.pixels.push_back(column.pixels);
      for (std::size_t i = 0; i < count; ++i)
        view.items[i * fields + f] =
            column.array.values.view.subspan(view.indices[i] * column.row_bytes, column.row_bytes);
    }
    return true;
  }
  [[nodiscard]] bool labelled() const override { return labels_.has_value(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    return labels_ ? integer_at(*labels_, index) : 0;
  }
  [[nodiscard]] std::optional<Error> fault() const override {
    for (const NpyColumn& column : columns_)
      if (auto lost = column.array.values.fault()) return lost;
    return labels_ ? labels_->values.fault() : std::nullopt;
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    return fmt::format("{}#{}", columns_.front().array.name, index);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return classes_; }
  [[nodiscard]] std::uint64_t fingerprint() const override;

 private:
  const std::vector<NpyColumn> columns_;
  const std::optional<NpyArray> labels_;
  std::vector<std::string> classes_;
  const std::uint64_t size_;
  std::vector<SourceField> fields_;
};

// Hashing everything would read a file that may be larger than memory.
std::uint64_t NpySet::fingerprint() const {
  constexpr std::size_t kEdge = std::size_t{1} << 20;
  Fingerprint fingerprint;
  for (const NpyColumn& column : columns_) {
    const NpyHeader& header = column.array.header;
    fingerprint.add(std::string_view(column.field.name))
        .add(static_cast<std::uint64_t>(header.dtype))
        .add(header.shape.size());
    for (const std::uint64_t size : header.shape) fingerprint.add(size);
    const auto& values = column.array.values.view;
    fingerprint.add(values.first(std::min(values.size(), kEdge)));
    fingerprint.add(values.last(std::min(values.size(), kEdge)));
  }
  if (labels_) fingerprint.add(labels_->values.view);
  return fingerprint.value();
}

}  // namespace

std::optional<decode::PixelShape> pixel_shape(const NpyHeader& header) {
  const auto& shape = header.shape;
  if (header.dtype != DType::kUInt8 || shape.size() < 3 || shape.size() > 4) return std::nullopt;
  const auto is_depth = [](std::uint64_t size) { return size == 1 || size == 3; };
  const bool last = shape.size() == 3 || is_depth(shape[3]);
  if (!last && !is_depth(shape[1])) return std::nullopt;
  const std::uint64_t height = last ? shape[1] : shape[2], width = last ? shape[2] : shape[3];
  const std::uint64_t depth = shape.size() == 3 ? 1 : last ? shape[3] : shape[1];
  if (std::min(height, width) < 1 || std::max(height, width) > decode::kMaxSide) return std::nullopt;
  return decode::PixelShape{.width = static_cast<std::int32_t>(width),
                            .height = static_cast<std::int32_t>(height),
                            .channels = static_cast<std::int32_t>(depth),
                            .planar = !last};
}

Result<std::shared_ptr<const Source>> open_npy_set(const NpyOptions& options) {
  auto arrays = open_arrays(options);
  if (!arrays) return fail(std::move(arrays.error()));
  if (auto fit = check_arrays(*arrays); !fit) return fail(std::move(fit.error()));
  std::optional<NpyArray> labels;
  const auto label = std::find_if(arrays->begin(), arrays->end(),
                                  [](const NamedArray& named) { return named.field == kLabel; });
  if (label != arrays->end()) {
    if (auto sound = see_labels(label->array, options.classes); !sound) return fail(std::move(sound.error()));
    labels = std::move(label->array);
    arrays->erase(label);
  } else if (!options.classes.empty()) {
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("{}: `classes` are named, but there is no field `label`", arrays->front().array.shown));
  }
  if (arrays->empty()) return refuse(labels->shown, "is the only field; name another one in `fields`");
  const std::string shown = arrays->front().array.shown;
  auto columns = columns_of(std::move(*arrays), options.images, shown);
  if (!columns) return fail(std::move(columns.error()));
  return std::make_shared<NpySet>(std::move(*columns), std::move(labels), options.classes);
}

described::Description<NpyOptions> NpyOptions::description() {
  using Self = NpyOptions;
  // With `path`, `fields` names its arrays; without it, `fields` names files.
  auto fields = described::without_default(described::key(
      "fields", &Self::arrays,
      described::map(described::expecting("a path, or the name of an array", described::text()), 1,
                     described::field()),
      "Name in batches -> .npy file. With `path`: name in batches -> name of an array in it (default: all "
      "arrays, by their own names). "
      "`label` is "
      "the class."));
  fields.read = [read = fields.read](Self& to, const described::Json& value,
                                     const described::Reading& reading) {
    read(to, value, reading);
    for (const auto& [name, file] : to.arrays) {
      const described::Reading here = reading.below(name);
      if (file.find('/') != std::string::npos) described::check_path(file, here);
      here.add_data(file);
      to.files[name] = described::absolute(reading.folder(), file);
    }
  };
  return {
      "npy",
      "numpy arrays whose first dimension is the sample: .npy files (fields), or one .npz file (path).",
      {described::without_default(
           described::key("path", &Self::npz, described::data_path(), "An .npz file.")),
       std::move(fields),
       described::optional("images", &Self::images, described::list(described::field()),
                           "Fields that are images: uint8 of (n, h, w), (n, h, w, 1 or 3) or (n, 1 or 3, h, "
                           "w). Default: `image`, if it has such a shape."),
       described::without_default(described::key("classes", &Self::classes, described::class_names()))},
      [](const Self&, const described::Json& map, const described::Reading& reading) {
        if (!map.contains("path") && !map.contains("fields"))
          reading.wrong_key("", "needs path (an .npz file) or fields (a .npy file each)");
      }};
}

namespace types {
SourceType npy() {
  return source_type<NpyOptions>(
      {.network = true, .in_memory = "arrays are mapped or in memory already", .mapped = true},
      [](const NpyOptions& options, const OpenContext& context) {
        NpyOptions all = options;
        all.remote = context.remote;
        (all.npz.empty() ? all.arrays.clear() : all.files.clear());
        return open_npy_set(all);
      });
}
}  // namespace types

}  // namespace headrace::server::source
