#include "server/remote/s3.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <pugixml.hpp>

namespace headrace::server::remote {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): this process sets no variables
  return value == nullptr ? "" : value;
}

pugi::xml_node root_of(pugi::xml_document& document, std::string_view xml, const char* name) {
  // pugixml does not expand a document's own entities, and does not recurse.
  if (!document.load_buffer(xml.data(), xml.size())) return {};
  return document.child(name);
}

}  // namespace

Result<S3> S3::from_environment(const S3Config& config) {
  S3 out;
  out.endpoint_ = config.endpoint.empty() ? environment("AWS_ENDPOINT_URL") : config.endpoint;
  while (out.endpoint_.ends_with('/')) out.endpoint_.pop_back();
  if (!out.endpoint_.empty() && (!is_url(out.endpoint_) || is_s3(out.endpoint_)))
    return fail(
        ErrorCode::kConfigInvalid,
        "the S3 endpoint is not an http:// or https:// URL: correct `s3.endpoint` or AWS_ENDPOINT_URL");
  out.region_ = config.region;
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (out.region_.empty()) out.region_ = environment(name);
  if (out.region_.empty()) out.region_ = "us-east-1";
  if (config.anonymous) return out;
  Keys keys{environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
            environment("AWS_SESSION_TOKEN")};
  if (keys.id.empty() != keys.secret.empty())
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("{} is set, but {} is not: set both, or say `s3: {{anonymous: true}}`",
                            keys.id.empty() ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID",
                            keys.id.empty() ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY"));
  if (!keys.id.empty()) out.keys_ = std::move(keys);
  return out;
}

std::string S3::bucket_url(const std::string& bucket) const {
  if (!endpoint_.empty()) return fmt::format("{}/{}", endpoint_, encoded(bucket, ""));
  const std::string host =
      fmt::format("s3.{}.amazonaws.com{}", region_, region_.starts_with("cn-") ? ".cn" : "");
  if (bucket.find('.') != std::string::npos) return fmt::format("https://{}/{}", host, encoded(bucket, ""));
  return fmt::format("https://{}.{}", encoded(bucket, ""), host);
}

Request S3::signed_request(std::string url) const {
  Request out{.url = std::move(url), .range = {}, .headers = {}, .region = region_, .follow = false};
  if (keys_) out.keys = &*keys_;
  return out;
}

Request S3::object(const S3Name& name) const {
  return signed_request(fmt::format("{}/{}", bucket_url(name.bucket), encoded(name.key)));
}

Request S3::listing(const S3Name& prefix, bool deep, const std::string& continuation) const {
  // libcurl 7.88 signs the query unchanged, so it is encoded and sorted here.
  std::string query;
  if (!continuation.empty()) query += fmt::format("continuation-token={}&", encoded(continuation, ""));
  if (!deep) query += "delimiter=%2F&";
  query += fmt::format("list-type=2&prefix={}", encoded(prefix.key, ""));
  return signed_request(fmt::format("{}/?{}", bucket_url(prefix.bucket), query));
}

tl::expected<ListedPage, std::string> parse_listing(std::string_view xml, const std::string& prefix) {
  const auto refuse = [](std::string what) { return tl::make_unexpected(std::move(what)); };
  pugi::xml_document document;
  const pugi::xml_node root = root_of(document, xml, "ListBucketResult");
  if (!root) return refuse("is not a reply of S3's ListObjectsV2; is the endpoint right?");
  ListedPage out;
  for (const pugi::xml_node node : root.children("Contents")) {
    ListedObject object{node.child_value("Key"), 0, node.child_value("ETag")};
    const std::string_view size = node.child_value("Size");
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), object.bytes);
    if (error != std::errc() || end != size.data() + size.size() || size.empty())
      return refuse(fmt::format("has no size for \"{}\"", object.key));
    if (!object.key.starts_with(prefix))
      return refuse(fmt::format("names \"{}\", which was not asked for", object.key));
    out.objects.push_back(std::move(object));
  }
  for (const pugi::xml_node node : root.children("CommonPrefixes")) {
    out.prefixes.emplace_back(node.child_value("Prefix"));
    if (!out.prefixes.back().starts_with(prefix) || !out.prefixes.back().ends_with('/'))
      return refuse(fmt::format("names \"{}\", which was not asked for", out.prefixes.back()));
  }
  if (std::string_view(root.child_value("IsTruncated")) != "true") return out;
  out.next = root.child_value("NextContinuationToken");
  if (out.next.empty())
    return refuse("is truncated, but has no NextContinuationToken; is the endpoint right?");
  return out;
}

std::string error_code_in(std::string_view xml) {
  pugi::xml_document document;
  std::string code = root_of(document, xml, "Error").child_value("Code");
  const bool name = code.size() <= 64 && std::all_of(code.begin(), code.end(), [](char c) {
                      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
                    });
  return name ? code : "";
}

}  // namespace headrace::server::remote
