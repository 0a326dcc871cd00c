// The available types of sources. To add one, write its file and add its line to source_types.cpp.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/described/described.h"
#include "server/remote/remote.h"
#include "server/source/member.h"

namespace headrace::server::source {

using SourcePtr = std::shared_ptr<const Source>;

/// What is needed to open a source, besides its options.
struct OpenContext {
  std::string name;                              ///< the source's name, for messages
  std::vector<Member> members;                   ///< the sources that it is made of, in the order of `of`
  std::shared_ptr<const remote::Remote> remote;  ///< reads the source's URLs
};

/// Traits of a type, beyond its own keys.
struct SourceTraits {
  bool network = false;                        ///< accepts URLs, and with them the keys `s3` and `tls_ca`
  bool cache = true, io = true, split = true;  ///< accepts these keys
  bool images = true;                          ///< may have images
  const char* in_memory = nullptr;             ///< why caching its files would be useless
  bool keeps_in_members = false;  ///< its samples are its members', which keep them: Source::distinct_sizes()
  bool mapped = false;            ///< its files are mapped: no disk cache
  /// Why it cannot read this URL; empty: it can.
  std::function<std::string(const std::string& url)> refuse = {};
  /// For options with a URL: whether each sample is read by a request of its own.
  std::function<bool(const described::Json& options)> by_sample = {};
};

struct SourceType {
  std::string name;
  described::Schema schema;  ///< of the type's own keys
  SourceTraits traits;
  std::function<std::any(const described::Json&, const described::Reading&)> read;
  std::function<Result<SourcePtr>(const std::any& options, const OpenContext&)> open;
  std::function<std::vector<SourceRef>(const std::any& options)> made_of;
};

template <class O>
SourceType source_type(const SourceTraits& traits, Result<SourcePtr> (*open)(const O&, const OpenContext&)) {
  const described::Codec<O> codec = described::object<O>();
  return {
      .name = described::description_of<O>().name,
      .schema = codec.schema,
      .traits = traits,
      .read = [codec](const described::Json& options,
                      const described::Reading& reading) { return std::any(codec.read(options, reading)); },
      .open = [open](const std::any& options,
                     const OpenContext& context) { return open(std::any_cast<const O&>(options), context); },
      .made_of = [](const std::any& options) -> std::vector<SourceRef> {
        if constexpr (requires(const O& o) { o.of; }) return std::any_cast<const O&>(options).of;
        return static_cast<void>(options), std::vector<SourceRef>{};
      }};
}

const std::vector<SourceType>& source_types();
/// Null: no type has this name.
const SourceType* find_source_type(std::string_view name);

}  // namespace headrace::server::source
