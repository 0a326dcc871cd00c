// What lies in a folder or file, by names and first bytes, and a configuration that serves it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "headrace/error.h"
#include "server/source/source.h"

namespace headrace::server::source {

/// One source and the stream over it.
struct ProposedStream {
  std::string name;    ///< of the stream; the source is "<name>_set"
  std::string source;  ///< YAML flow mapping
  bool training;
  std::string stream;  ///< YAML block lines of the stream, 4 columns in
};

struct Proposal {
  std::string found;                  ///< "CIFAR-10, binary version: training and test set"
  std::string config;                 ///< YAML; its paths are absolute, or URLs
  std::vector<std::string> notes;     ///< what it leaves out of the files that it takes
  std::vector<ProposedStream> parts;  ///< what `config` is made of
};

/// Whether a file of this name is data, not a configuration: .tar, .npy, .npz, .csv, .tsv, .jsonl, .ndjson,
/// .txt.
bool is_dataset_file(const std::filesystem::path& path);

/// `path` may be a URL. kDatasetInvalid: nothing that a source reads; says what was looked for. Or an LMDB
/// that headrace pack did not write.
Result<Proposal> propose(const std::filesystem::path& path);

/// Transforms of `stream` that were proposed before an image was opened are made to fit the images of its
/// source: pairs are cropped as pairs, and small images are not enlarged. True: `config` is another.
bool fit(Proposal& proposal, const std::string& stream, const Source& source);

/// What is there as well, and not in the proposal: its notes, and of a folder what lies beside.
std::vector<std::string> notes_on(const std::filesystem::path& path, const Proposal& proposal);

}  // namespace headrace::server::source
