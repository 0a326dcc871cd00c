// Opening and reading datasets, for targets: each is refused by name, or can be read within its bounds.
#pragma once

#include <memory>

#include "server/source/source.h"
#include "server/source/source_type.h"
#include "tests/fuzz/fuzz.h"

namespace headrace::fuzz {

using Opened = Result<std::shared_ptr<const server::source::Source>>;

/// Opens a dataset as a server does.
template <class Options>
Opened open_as(const Options& options) {
  static const auto* const type =
      server::source::find_source_type(server::described::description_of<Options>().name);
  require(type != nullptr, "a target opens a type of sources that exists");
  return type->open(std::any(options), {});
}

inline void read_item(const server::source::SourceField& field, const server::source::Item& item) {
  using server::source::Content;
  touch(item.bytes);
  const auto& pixels = item.pixels;
  if (field.content == Content::kPixels)
    require(item.bytes.empty() || static_cast<std::uint64_t>(pixels.width) *
                                          static_cast<std::uint64_t>(pixels.height) *
                                          static_cast<std::uint64_t>(pixels.channels) ==
                                      item.bytes.size(),
            "pixels have the size of their shape");
  if (field.content != Content::kValues && field.content != Content::kRagged) return;
  std::uint64_t bytes = size_of(field.dtype);
  for (const std::int64_t dim : field.shape) bytes *= static_cast<std::uint64_t>(dim);
  require(field.content == Content::kValues ? item.bytes.size() == bytes
                                            : bytes == 0 || item.bytes.size() % bytes == 0,
          "values have the size of their shape");
}

/// Of sources that give their samples without a copy.
inline void read_views(const server::source::Source& source, std::uint64_t count) {
  server::source::SampleView view;
  for (std::uint64_t i = 0; i < count; ++i) view.indices.push_back(i);
  if (!source.view_samples(view)) return;
  const std::size_t fields = source.fields().size();
  require(view.items.size() == count * fields && view.pixels.size() == fields, "each sample has its fields");
  server::source::Sample sample;
  for (std::uint64_t i = 0; i < count; ++i) {
    require(source.read(i, sample).has_value(), "what is viewed can be read");
    for (std::size_t f = 0; f < fields; ++f)
      require(std::ranges::equal(view.items[i * fields + f], sample.item(f).bytes), "a view is what is read");
  }
}

/// At most `most` samples.
inline void read_source(const Opened& opened, std::uint64_t most = 16) {
  if (!opened) {
    const ErrorCode code = opened.error().code;
    if (code != ErrorCode::kDatasetInvalid && code != ErrorCode::kVersionMismatch)
      break_contract("a dataset is refused as invalid, not by " + opened.error().to_string());
    require(!opened.error().message.empty(), "a refusal says why");
    return;
  }
  const server::source::Source& source = **opened;
  require(source.size() > 0 && !source.fields().empty(), "a dataset has samples and fields");
  const auto classes = static_cast<std::int64_t>(source.class_names().size());
  server::source::Sample sample;
  require(source.fingerprint() == source.fingerprint(), "a dataset has one fingerprint");
  for (std::size_t f = 0; f < source.fields().size(); ++f)
    require(source.most_values(f, 1) > 0 || source.fields()[f].content == server::sample::Content::kRagged,
            "a batch has room for a sample");
  for (std::uint64_t i = 0; i < std::min(source.size(), most); ++i) {
    (void)source.name(i);
    require(i == 0 || source.whole_index(i) > source.whole_index(i - 1), "indices ascend");
    if (source.labelled())
      require(source.label(i) >= 0 && (classes == 0 || source.label(i) < classes), "a label has a class");
    const auto read = source.read(i, sample);
    if (!read) {
      require(!read.error().message.empty(), "a refusal says why");
      continue;
    }
    for (std::size_t f = 0; f < source.fields().size(); ++f) read_item(source.fields()[f], sample.item(f));
  }
  read_views(source, std::min(source.size(), most));
  require(!source.fault(), "a file that nobody truncated has no fault");
}

}  // namespace headrace::fuzz
