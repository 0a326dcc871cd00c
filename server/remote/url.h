// URLs in configurations: recognizing, parsing and showing them.
#pragma once

#include <string>
#include <string_view>

#include "headrace/error.h"

namespace headrace::server::remote {

/// Begins with http://, https:// or s3://.
bool is_url(std::string_view text);
bool is_s3(std::string_view text);

/// For messages, logs and files: the URL without user, password and query, which may hold secrets
/// (signatures); "?..." stands for the query. Not encoded: "https://host/a b.tar". s3:// URLs hold no secrets
/// and are returned unchanged, and so are paths. For a malformed URL: "(a URL that cannot be read)".
std::string shown(std::string_view url);

/// Encodes every byte that must be encoded in transit (blanks, non-ASCII); encoded bytes stay.
/// kDatasetInvalid: not an http or https URL.
Result<std::string> normalized(std::string_view url);

/// A name as a part of a URL: letters, digits, "-", ".", "_", "~" and the characters of `also` are not
/// encoded.
std::string encoded(std::string_view name, std::string_view also = "/");

/// The URL of a file below a folder's URL: `path` is a name, not encoded; a query of `root` stays at the end.
/// A `path` that is a URL is returned unchanged.
std::string below(std::string_view root, std::string_view path);

/// The folder of a file's URL, without a query.
std::string parent(std::string_view url);

/// The file name in a URL or path, decoded, without a query.
std::string name_of(std::string_view url);

/// s3://bucket/key. The key is a name, not encoded; it may be empty.
struct S3Name {
  std::string bucket, key;
};
S3Name s3_name(std::string_view url);

}  // namespace headrace::server::remote
