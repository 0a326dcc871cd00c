// An owning pointer to libarchive's reader, and names that do not depend on the process's locale.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>  // NOLINT(modernize-deprecated-headers): newlocale is POSIX's

#include <memory>
#include <string>

namespace headrace::server::source {

struct FreeArchive {
  void operator()(::archive* reader) const { ::archive_read_free(reader); }
};
using Archive = std::unique_ptr<::archive, FreeArchive>;

/// libarchive's message for its last call.
inline std::string why(::archive* reader) {
  const char* text = ::archive_error_string(reader);
  return text == nullptr ? "no reason given" : text;
}

/// While it exists, libarchive on this thread returns names as they are stored (UTF-8 or plain bytes); in the
/// C locale it would replace non-ASCII characters by question marks.
class Utf8Names {
 public:
  Utf8Names() {
    static const locale_t kUtf8 = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", static_cast<locale_t>(nullptr));
    if (kUtf8 != nullptr) before_ = ::uselocale(kUtf8);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;
  ~Utf8Names() {
    if (before_ != nullptr) ::uselocale(before_);
  }

 private:
  locale_t before_ = nullptr;
};

}  // namespace headrace::server::source
