#include "server/source/files/text_lines.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace headrace::server::source {

std::string open_text(const std::filesystem::path& file, std::ifstream& stream) {
  std::error_code status;
  // Only regular files: a pipe or a device might never end.
  if (std::filesystem::exists(file, status) && !std::filesystem::is_regular_file(file, status))
    return "is not a file";
  errno = 0;
  stream.open(file);
  return stream ? "" : std::strerror(errno);
}

std::string each_line(const std::filesystem::path& file,
                      const std::function<void(std::uint64_t, std::string_view)>& each) {
  std::ifstream stream;
  if (auto why = open_text(file, stream); !why.empty()) return why;
  return each_line(stream, each);
}

std::string each_line(std::istream& stream,
                      const std::function<void(std::uint64_t, std::string_view)>& each) {
  std::string text;
  for (std::uint64_t line = 1; std::getline(stream, text); ++line) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (!text.empty()) each(line, text);
  }
  return stream.bad() ? std::strerror(errno) : "";
}

}  // namespace headrace::server::source
