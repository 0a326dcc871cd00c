// Text files with one thing a line: reading them, and saying which lines are wrong.
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

/// Gives `each` the number (from 1) and the text of every line that is not empty, without its end, be that
/// \n or \r\n. Returns why the file cannot be read; empty: it was.
std::string each_line(const std::filesystem::path& file,
                      const std::function<void(std::uint64_t line, std::string_view text)>& each);
std::string each_line(std::istream& stream,
                      const std::function<void(std::uint64_t line, std::string_view text)>& each);

}  // namespace headrace::server::source
