// Codecs of references to sources, shared by the sources that combine others.
#pragma once

#include "server/described/names.h"
#include "server/source/source_type.h"

namespace headrace::server::source {

/// Files are cached by the sources that read them.
inline constexpr const char* kMembersKeep =
    "files are kept by the sources that read them: give those a `cache`";

inline described::Codec<SourceRef> source_ref() {
  auto out = described::converted<SourceRef, std::string>(
      described::text("^[A-Za-z][A-Za-z0-9_-]{0,46}(\\.[A-Za-z][A-Za-z0-9_-]{0,46})?$",
                      "the name of a source, or source.part"),
      [](const std::string& text) { return SourceRef::of(text); },
      [](const SourceRef& ref) { return ref.text(); });
  out.schema["description"] = "One of `sources`, or source.part for a part of a source with a split.";
  return described::named("source_ref", std::move(out));
}

inline described::Codec<std::vector<SourceRef>> source_refs() {
  return described::named("source_refs", described::expecting("a list of sources' names",
                                                              described::list(source_ref(), 1, 1000)));
}

/// A single reference, kept as a list.
inline described::Codec<std::vector<SourceRef>> only_ref() {
  return described::converted<std::vector<SourceRef>, SourceRef>(
      source_ref(), [](const SourceRef& ref) { return std::vector<SourceRef>{ref}; },
      [](const std::vector<SourceRef>& refs) { return refs.front(); });
}

}  // namespace headrace::server::source
