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

/// Is called first, with the column names: those of the header or of the first object; for a list, "path" and
/// "label" (.txt: one path per line, followed after its last blank by a label if that is a whole number in
/// the first line). Returns the wanted columns.
using WantColumns = std::function<std::vector<std::string>(const std::vector<std::string>& columns)>;
/// Is called for each row with the cells of the wanted columns; missing cells are null, cells from CSV are
/// text. `fault`: why the row cannot be read; `cells` is then empty.
using EachRow =
    std::function<void(std::uint64_t line, std::span<const nlohmann::json> cells, const std::string& fault)>;

/// The file's extension decides the format: .csv, .tsv, .jsonl (.ndjson), .txt. Returns why the file cannot
/// be read; empty: it was read.
std::string each_row(const std::filesystem::path& file, const WantColumns& want, const EachRow& each);
/// The same for a stream. `name`: gives the extension.
std::string each_row(std::istream& stream, const std::filesystem::path& name, const WantColumns& want,
                     const EachRow& each);

}  // namespace headrace::server::source
