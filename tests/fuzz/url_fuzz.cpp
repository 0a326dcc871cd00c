// URLs (server/remote/url.h) and the queries of the HTTP port (server/metrics/http_query.h).
#include "server/remote/url.h"

#include <curl/curl.h>

#include <memory>

#include "tests/fuzz/fuzz.h"

namespace headrace::server::remote {
namespace {

std::string decoded(const std::string& text) {
  int size = 0;
  const std::unique_ptr<char, decltype(&::curl_free)> out(
      ::curl_easy_unescape(nullptr, text.c_str(), static_cast<int>(text.size()), &size), &::curl_free);
  require(out != nullptr, "an encoded name can be decoded");
  return {out.get(), static_cast<std::size_t>(size)};
}

void read_url(const std::string& url) {
  const std::string seen = shown(url);
  if (!is_url(url)) require(seen == url, "a path is shown as it is");
  if (const auto sent = normalized(url)) {
    const auto again = normalized(*sent);
    require(again && *again == *sent, "a normalized URL is its own normal form");
    // What is shown has neither user nor password; a path may have an "@".
    const auto host = sent->substr(sent->find("://") + 3);
    const auto at = host.substr(0, host.find_first_of("/?")).rfind('@');
    if (is_url(url) && !is_s3(url) && at != std::string::npos && at > 0)
      require(!seen.starts_with(sent->substr(0, sent->find("://") + 4 + at)), "a password is not shown");
  }
  (void)parent(url);
  if (is_url(url)) (void)name_of(url);
  if (is_s3(url)) {
    const S3Name name = s3_name(url);
    require(name.bucket.find('/') == std::string::npos, "a bucket's name has no slash");
    require(url == "s3://" + name.bucket || url == "s3://" + name.bucket + "/" + name.key,
            "an s3:// URL is its bucket and key");
  }
}

void read_names(const std::string& root, const std::string& name) {
  require(decoded(encoded(name, "")) == name, "a name is what its encoded form decodes to");
  const std::string whole = below(root, name);
  if (is_url(name)) require(whole == name, "a URL is below no folder");
  if (is_s3(root) && !is_url(name)) require(whole.ends_with("/" + name), "S3's keys are not encoded");
}

}  // namespace
}  // namespace headrace::server::remote

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  const std::string text(fuzz::text_of({data, size}));
  // Configurations have no NUL in their text.
  const auto nul = text.find('\0');
  const std::string url = text.substr(0, nul);
  server::remote::read_url(url);
  if (nul != std::string::npos) server::remote::read_names(url, text.substr(nul + 1));
  return 0;
}
