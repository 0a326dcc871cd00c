#include "server/source/files/text_lines.h"

#include <fmt/format.h>

#include <array>
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

bool next_line(std::istream& stream, std::string& text) {
  text.clear();
  std::array<char, 4096> part;
  for (;;) {
    stream.getline(part.data(), part.size());
    const auto read = static_cast<std::size_t>(stream.gcount());
    if (!stream.fail()) {  // the end of the line, which was read as well, or of the file
      text.append(part.data(), stream.eof() ? read : read - 1);
      return true;
    }
    if (stream.bad() || stream.eof()) return false;  // nothing was left
    text.append(part.data(), read);
    stream.clear(stream.rdstate() & ~std::ios::failbit);
    if (text.size() > kLongestLine) {
      errno = EOVERFLOW;
      stream.setstate(std::ios::badbit);
      return false;
    }
  }
}

std::string why_unreadable(const std::istream& stream) {
  if (!stream.bad()) return {};
  if (errno == EOVERFLOW)
    return fmt::format("a line has more than {} MiB: is it a text file?", kLongestLine >> 20);
  return std::strerror(errno);
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
  for (std::uint64_t line = 1; next_line(stream, text); ++line) {
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (!text.empty()) each(line, text);
  }
  return why_unreadable(stream);
}

}  // namespace headrace::server::source
