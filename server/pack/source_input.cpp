#include "server/pack/source_input.h"

namespace headrace::server::pack {

SourceInput::SourceInput(const source::Source& source) : source_(source) {
  meta_.count = source.size();
  meta_.fields = source.fields();
  meta_.labelled = source.labelled();
  meta_.classes = source.class_names();
  meta_.source_fingerprint = source.fingerprint();
}

Result<bool> SourceInput::read(std::uint64_t index, InputSample& out) {
  if (index >= source_.size()) return false;
  out.name = source_.name(index);
  out.label = source_.label(index);
  const auto read = source_.read(index, out.sample);
  if (!read && read.error().code != ErrorCode::kBadSample) return fail(read.error());
  out.bad = read ? std::string() : read.error().message;
  return true;
}

store::Writer::Tables SourceInput::tables() const {
  store::Writer::Tables tables;
  bool own = true;
  for (std::uint64_t i = 0; i < source_.size(); ++i) {
    if (source_.labelled()) tables.labels.push_back(static_cast<std::uint64_t>(source_.label(i)));
    tables.wholes.push_back(source_.whole_index(i));
    own = own && tables.wholes.back() == i;
  }
  if (own) tables.wholes.clear();
  return tables;
}

}  // namespace headrace::server::pack
