// The types of sources that there are. To add one: its file, and its line in source_types.cpp.
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

/// What a source is opened with, besides its options.
struct OpenContext {
  std::string name;                              ///< the source's, for messages
  std::vector<Member> members;                   ///< of what it is made of, in the order of `of`
  std::shared_ptr<const remote::Remote> remote;  ///< for its URLs
};

/// What a type can do, beyond its own keys.
struct SourceTraits {
  bool one_size = false;  ///< all images may have one size: that is known once it is open
  bool network = false;   ///< takes URLs, and with them the keys `s3` and `tls_ca`
  bool cache = true, io = true, split = true;  ///< takes these keys
  bool images = true;                          ///< may have some
  const char* in_memory = nullptr;             ///< why a cache of its files would be of no use
  bool mapped = false;                         ///< is read where it lies: no disk cache
  /// Why it cannot read this URL; empty: it can.
  std::function<std::string(const std::string& url)> refuse = {};
  /// Of options that have a URL: each read of a sample is one over the network.
  std::function<bool(const described::Json& options)> by_sample = {};
};

struct SourceType {
  std::string name;
  described::Schema schema;  ///< of its own keys
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
/// Null: there is none of that name.
const SourceType* find_source_type(std::string_view name);

}  // namespace headrace::server::source
