// The rows of a manifest: CSV and TSV (RFC 4180, with a header), JSON lines, or a list of paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace headrace::server::source {

/// Gets the names of the columns first: of the header, of the first object, or "path" and "label" of a list
/// (.txt: a path a line, and behind its last blank the label if the first line has a whole number there).
/// Returns which of them it wants.
using WantColumns = std::function<std::vector<std::string>(const std::vector<std::string>& columns)>;
/// A row: the cells of the wanted columns, null where there is none; text from CSV. `fault`: the row cannot
/// be read, and why; `cells` is empty then.
using EachRow =
    std::function<void(std::uint64_t line, std::span<const nlohmann::json> cells, const std::string& fault)>;

/// By the file's extension: .csv, .tsv, .jsonl (.ndjson), .txt. Returns why the file cannot be read; empty:
/// it was.
std::string each_row(const std::filesystem::path& file, const WantColumns& want, const EachRow& each);
/// The same of what is not in a file. `name`: for its extension.
std::string each_row(std::istream& stream, const std::filesystem::path& name, const WantColumns& want,
                     const EachRow& each);

}  // namespace headrace::server::source
