// Amazon S3 and compatible services (MinIO, Ceph, ...): the URLs of objects, the keys that sign requests, and
// the contents of listings and errors.
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

/// An object of a listing. `tag` is its ETag, including the quotes.
struct ListedObject {
  std::string key;
  std::uint64_t bytes = 0;
  std::string tag;
};

struct ListedPage {
  std::vector<ListedObject> objects;
  std::vector<std::string> prefixes;  ///< including the final /
  std::string next;                   ///< the continuation token; empty: this is the last page
};

class S3 {
 public:
  /// Keys are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and nowhere else (no
  /// profiles, no instance metadata); without the first two, requests are not signed. kConfigInvalid: only
  /// one of the two is set, or the endpoint is not an http:// or https:// URL.
  static Result<S3> from_environment(const S3Config& config);

  /// With a configured endpoint the bucket is the first part of the path; at AWS it is part of the host,
  /// unless its name has a dot, which certificates do not cover.
  [[nodiscard]] Request object(const S3Name& name) const;
  /// Pages of up to 1000. `deep`: all keys below the prefix; otherwise keys without a further "/", and
  /// prefixes.
  [[nodiscard]] Request listing(const S3Name& prefix, bool deep, const std::string& continuation) const;
  [[nodiscard]] const std::string& region() const { return region_; }
  [[nodiscard]] bool has_keys() const { return keys_.has_value(); }

 private:
  [[nodiscard]] Request signed_request(std::string url) const;
  [[nodiscard]] std::string bucket_url(const std::string& bucket) const;

  std::string endpoint_, region_;
  std::optional<Keys> keys_;
};

/// Parses ListObjectsV2's reply. An error's text continues the sentence "the listing ...".
tl::expected<ListedPage, std::string> parse_listing(std::string_view xml, const std::string& prefix);
/// The code of an error reply ("NoSuchBucket"); empty: it has none. No other part is safe to show.
std::string error_code_in(std::string_view xml);

}  // namespace headrace::server::remote
