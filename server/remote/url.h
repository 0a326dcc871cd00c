// URLs as configurations have them: which they are, what they name, and how messages show them.
#pragma once

#include <string>
#include <string_view>

#include "headrace/error.h"

namespace headrace::server::remote {

/// Begins with http://, https:// or s3://.
bool is_url(std::string_view text);
bool is_s3(std::string_view text);

/// For messages, logs and files: without what may be secret, that is user and password, and what follows "?"
/// (signatures), for which "?..." stands. Not encoded: "https://host/a b.tar". Of an s3:// URL: itself, as it
/// holds no secret. Of what is no URL, a path: itself. Of a broken one: "(a URL that cannot be read)".
std::string shown(std::string_view url);

/// With every byte in its place that only comes encoded over the wire (blanks, what is not ASCII); what is
/// encoded stays. kDatasetInvalid: no URL of http or https.
Result<std::string> normalized(std::string_view url);

/// A name as a part of a URL: letters, digits, "-", ".", "_", "~" and those of `also` stay as they are.
std::string encoded(std::string_view name, std::string_view also = "/");

/// The URL of a file below a folder's: `path` is a name, not encoded, and a query of `root` stays at the end.
/// A `path` that is a URL is taken as it is.
std::string below(std::string_view root, std::string_view path);

/// The folder of a file's URL, without a query.
std::string parent(std::string_view url);

/// The name of a file by its URL or path, decoded, without a query.
std::string name_of(std::string_view url);

/// s3://bucket/key. The key is a name, not encoded; it may be empty.
struct S3Name {
  std::string bucket, key;
};
S3Name s3_name(std::string_view url);

}  // namespace headrace::server::remote
