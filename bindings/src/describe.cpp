// Converts streams and fields to Python dicts, which headrace/types.py turns into data classes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings/src/bindings.h"
#include "clientlib/wire/words.h"

namespace headrace::python {

nb::list to_list(const std::vector<FieldSpec>& fields) {
  nb::list list;
  for (const FieldSpec& field : fields) {
    nb::dict entry;
    entry["name"] = field.name;
    entry["dtype"] = name_of(field.dtype);
    entry["ragged"] = field.kind == FieldKind::kRagged;
    entry["shape"] = nb::tuple(nb::cast(field.shape));
    list.append(entry);
  }
  return list;
}

nb::dict to_dict(const StreamInfo& info) {
  nb::dict fingerprint;
  fingerprint["dataset"] = info.fingerprint.dataset;
  fingerprint["plan"] = info.fingerprint.plan;
  fingerprint["seed"] = info.fingerprint.seed;
  fingerprint["algorithm"] = info.fingerprint.algorithm;
  nb::dict dict;
  dict["name"] = info.name;
  dict["delivery"] = wire::word_of(info.delivery);
  dict["samples"] = info.samples;
  dict["batch_size"] = info.batch_size;
  dict["last"] = wire::word_of(info.last);
  dict["shuffle"] = info.shuffle;
  dict["fields"] = to_list(info.fields);
  dict["classes"] = info.classes;
  dict["fingerprint"] = fingerprint;
  dict["live"] = info.live;
  nb::list on_device;
  for (const DeviceImage& image : info.on_device) on_device.append(info.fields[image.field].name);
  dict["on_device"] = on_device;
  dict["residence"] = info.residence ? nb::cast("gpu") : nb::none();
  return dict;
}

}  // namespace headrace::python
