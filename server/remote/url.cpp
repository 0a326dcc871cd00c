#include "server/remote/url.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>
#include <new>

namespace headrace::server::remote {
namespace {

constexpr std::string_view kS3 = "s3://";

struct FreeUrl {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
};

/// A URL, split into its parts.
class Parts {
 public:
  explicit Parts(std::string_view url) : url_(::curl_url()) {
    if (!url_) throw std::bad_alloc();
    sound_ =
        ::curl_url_set(url_.get(), CURLUPART_URL, std::string(url).c_str(), CURLU_URLENCODE) == CURLUE_OK;
  }
  [[nodiscard]] bool sound() const { return sound_; }
  [[nodiscard]] std::string get(CURLUPart part, unsigned flags = 0) const {
    char* text = nullptr;
    if (::curl_url_get(url_.get(), part, &text, flags) != CURLUE_OK) return {};
    const std::unique_ptr<char, decltype(&::curl_free)> owner(text, &::curl_free);
    return text;
  }
  /// A null `value` removes the part.
  void set(CURLUPart part, const char* value) { ::curl_url_set(url_.get(), part, value, 0); }

 private:
  std::unique_ptr<CURLU, FreeUrl> url_;
  bool sound_ = false;
};

}  // namespace

bool is_s3(std::string_view text) {
  return text.starts_with(kS3);
}

bool is_url(std::string_view text) {
  return text.starts_with("http://") || text.starts_with("https://") || is_s3(text);
}

std::string shown(std::string_view url) {
  if (is_s3(url) || !is_url(url)) return std::string(url);
  Parts parts(url);
  if (!parts.sound()) return "(a URL that cannot be read)";
  const bool query = !parts.get(CURLUPART_QUERY).empty();
  const std::string port = parts.get(CURLUPART_PORT);
  return fmt::format("{}://{}{}{}{}{}", parts.get(CURLUPART_SCHEME), parts.get(CURLUPART_HOST),
                     port.empty() ? "" : ":", port, parts.get(CURLUPART_PATH, CURLU_URLDECODE),
                     query ? "?..." : "");
}

Result<std::string> normalized(std::string_view url) {
  Parts parts(url);
  if (!parts.sound())
    return fail(ErrorCode::kDatasetInvalid,
                "a URL cannot be read (it is not shown, as it may hold a password): write it as "
                "https://host/path, with %XX for special characters");
  parts.set(CURLUPART_FRAGMENT, nullptr);
  return parts.get(CURLUPART_URL);
}

std::string encoded(std::string_view name, std::string_view also) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string out;
  for (const char c : name) {
    if (kPlain.find(c) != std::string_view::npos || also.find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string below(std::string_view root, std::string_view path) {
  if (is_url(path)) return std::string(path);
  const bool s3 = is_s3(root);
  std::string_view query;
  if (const auto at = s3 ? std::string_view::npos : root.find('?'); at != std::string_view::npos) {
    query = root.substr(at);
    root = root.substr(0, at);
  }
  while (root.ends_with('/')) root.remove_suffix(1);
  return fmt::format("{}/{}{}", root, s3 ? std::string(path) : encoded(path), query);
}

std::string parent(std::string_view url) {
  if (!is_s3(url)) url = url.substr(0, url.find_first_of("?#"));
  return std::string(url.substr(0, url.rfind('/')));
}

std::string name_of(std::string_view url) {
  std::string path(url);
  if (is_url(url) && !is_s3(url)) {
    const Parts parts(url);
    path = parts.sound() ? parts.get(CURLUPART_PATH, CURLU_URLDECODE) : "";
  }
  return path.substr(path.rfind('/') + 1);
}

S3Name s3_name(std::string_view url) {
  url.remove_prefix(kS3.size());
  const auto slash = url.find('/');
  if (slash == std::string_view::npos) return {std::string(url), {}};
  return {std::string(url.substr(0, slash)), std::string(url.substr(slash + 1))};
}

}  // namespace headrace::server::remote
