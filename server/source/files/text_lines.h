// Reads text files with one entry per line, and reports wrong lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <istream>
#include <string>
#include <string_view>

namespace headrace::server::source {

/// Opens a file for reading. Returns why it cannot be read; empty: it can.
std::string open_text(const std::filesystem::path& file, std::ifstream& stream);

/// A longer line is refused: it is no text.
inline constexpr std::size_t kLongestLine = std::size_t{16} << 20;
/// Like std::getline, without reading more than kLongestLine bytes: then the stream's badbit is set, and
/// errno is EOVERFLOW.
bool next_line(std::istream& stream, std::string& text);
/// Why a stream's badbit is set; empty: it is not.
std::string why_unreadable(const std::istream& stream);

/// Calls `each` with the number (from 1) and the text of every non-empty line, without its \n or \r\n.
/// Returns why the file cannot be read; empty: it was read.
std::string each_line(const std::filesystem::path& file,
                      const std::function<void(std::uint64_t line, std::string_view text)>& each);
std::string each_line(std::istream& stream,
                      const std::function<void(std::uint64_t line, std::string_view text)>& each);

}  // namespace headrace::server::source
