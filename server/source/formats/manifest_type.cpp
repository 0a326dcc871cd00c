// The keys of manifests.
#include "server/described/names.h"
#include "server/remote/url.h"
#include "server/source/formats/manifest.h"
#include "server/source/source_type.h"

namespace headrace::server::source {

namespace {

described::Description<ManifestField> manifest_field() {
  using Self = ManifestField;
  using Kind = ManifestKind;
  return {
      "",
      "",
      {described::key("kind", &Self::kind,
                      described::word<Kind>({{"image", Kind::kImage},
                                             {"mask", Kind::kMask},
                                             {"class", Kind::kClass},
                                             {"value", Kind::kValue},
                                             {"ragged", Kind::kRagged},
                                             {"text", Kind::kText},
                                             {"multi_hot", Kind::kMultiHot}})),
       described::without_default(
           described::key("column", &Self::column, described::text(), "Default: the field's name.")),
       described::key("dtype", &Self::dtype,
                      described::dtype({DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32,
                                        DType::kInt64, DType::kFloat32, DType::kFloat64, DType::kBool}),
                      "Type of the values. For value, ragged and multi_hot."),
       described::without_default(described::key(
           "shape", &Self::shape, described::list(described::integer<std::int64_t>(1, 65'535), 0, 5),
           "For value: the shape of its list. For ragged: the shape of one element. Default: a single "
           "number.")),
       described::without_default(described::key(
           "classes", &Self::classes, described::class_names(),
           "Names of labels 0, 1, ... Default for class: the names that occur, sorted; if all of them are "
           "whole numbers, each is its own label. Required for multi_hot.")),
       described::key("scale", &Self::scale, described::integer<std::int32_t>(1, 64))},
      [](const Self& field, const described::Json&, const described::Reading& reading) {
        if (field.kind == Kind::kMultiHot && field.classes.empty())
          reading.wrong_key("", "key \"classes\" is missing: the rows of multi_hot have one value per class");
      }};
}

}  // namespace

described::Description<ManifestOptions> ManifestOptions::description() {
  using Self = ManifestOptions;
  return {"manifest",
          "Samples listed in a file: .csv or .tsv (with a header), .jsonl, or .txt (one path per line, with "
          "or without a label after it).",
          {described::required("path", &Self::path, described::data_path()),
           described::without_default(described::key("root", &Self::root, described::data_path(),
                                                     "The folder that relative paths start from. It may be a "
                                                     "URL, as `path` may. Default: the manifest's folder.")),
           described::without_default(described::key(
               "fields", &Self::fields,
               described::map(described::object(manifest_field()), 1, described::field()),
               "Default: `image` from the column path, image, file or filename, and the class from label or "
               "class."))}};
}

namespace types {
SourceType manifest() {
  return source_type<ManifestOptions>(
      {.network = true,
       .by_sample =
           [](const described::Json& options) {
             // A manifest is read once, its images again and again.
             return remote::is_url(options.value("root", options.value("path", "")));
           }},
      [](const ManifestOptions& options, const OpenContext& context) {
        ManifestOptions all = options;
        all.remote = context.remote;
        return open_manifest(all);
      });
}
}  // namespace types

}  // namespace headrace::server::source
