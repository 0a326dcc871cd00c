// What lies in a folder or file, by names and first bytes, and a configuration that serves it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headrace/error.h"

namespace headrace::server::source {

struct Proposal {
  std::string found;               ///< "CIFAR-10, binary version: training and test set"
  std::string config;              ///< YAML; its paths are absolute, or URLs
  std::vector<std::string> notes;  ///< what it leaves out of the files that it takes
};

/// Whether a file of this name is data, not a configuration: .tar, .npy, .npz, .csv, .tsv, .jsonl, .ndjson,
/// .txt.
bool is_dataset_file(const std::filesystem::path& path);

/// `path` may be a URL. kDatasetInvalid: nothing that a source reads; says what was looked for. Or an LMDB
/// that headrace pack did not write.
Result<Proposal> propose(const std::filesystem::path& path);

/// What is there as well, and not in the proposal: its notes, and of a folder what lies beside.
std::vector<std::string> notes_on(const std::filesystem::path& path, const Proposal& proposal);

}  // namespace headrace::server::source
