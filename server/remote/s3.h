// Amazon S3 and what speaks like it (MinIO, Ceph, ...): where objects are, whose keys sign for them, what
// listings and errors say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "server/remote/transfer.h"
#include "server/remote/url.h"

namespace headrace::server::remote {

struct S3Config {
  std::string endpoint;  ///< "http://host:port"; empty: AWS_ENDPOINT_URL, else AWS itself
  std::string region;    ///< empty: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1
  bool anonymous = false;
};

/// An object of a listing. `tag` is its ETag, with its quotes.
struct ListedObject {
  std::string key;
  std::uint64_t bytes = 0;
  std::string tag;
};

struct ListedPage {
  std::vector<ListedObject> objects;
  std::vector<std::string> prefixes;  ///< with the / at their end
  std::string next;                   ///< the continuation token; empty: this is the last page
};

class S3 {
 public:
  /// Keys are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and from nowhere else
  /// (no profiles, no instance metadata); without the first two requests are not signed. kConfigInvalid: one
  /// of the two without the other, an endpoint that is no http:// or https:// URL.
  static Result<S3> from_environment(const S3Config& config);

  /// At an endpoint of its own the bucket is the path's first part; at AWS it is the host's, unless it has a
  /// dot, which certificates do not cover.
  [[nodiscard]] Request object(const S3Name& name) const;
  /// Pages of up to 1000. `deep`: all keys below the prefix; else those without a further "/", and prefixes.
  [[nodiscard]] Request listing(const S3Name& prefix, bool deep, const std::string& continuation) const;
  [[nodiscard]] const std::string& region() const { return region_; }
  [[nodiscard]] bool has_keys() const { return keys_.has_value(); }

 private:
  [[nodiscard]] Request signed_request(std::string url) const;
  [[nodiscard]] std::string bucket_url(const std::string& bucket) const;

  std::string endpoint_, region_;
  std::optional<Keys> keys_;
};

/// ListObjectsV2's answer. An error's text ends the sentence "the listing ...".
tl::expected<ListedPage, std::string> parse_listing(std::string_view xml, const std::string& prefix);
/// The code of an error's answer ("NoSuchBucket"); empty: it has none. Nothing else of it is safe to show.
std::string error_code_in(std::string_view xml);

}  // namespace headrace::server::remote
