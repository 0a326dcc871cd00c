// Recognizes what a folder or file contains, by names and first bytes, and proposes a configuration for it.
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
  std::string stream;  ///< YAML block lines of the stream, indented by 4 columns
};

struct Proposal {
  std::string found;                  ///< "CIFAR-10, binary version: training and test set"
  std::string config;                 ///< YAML; its paths are absolute, or URLs
  std::vector<std::string> notes;     ///< what the proposal leaves out of the files that it uses
  std::vector<ProposedStream> parts;  ///< the parts of `config`
};

/// Whether a file of this name is data, not a configuration: .tar, .npy, .npz, .csv, .tsv, .jsonl, .ndjson,
/// .txt.
bool is_dataset_file(const std::filesystem::path& path);

/// `path` may be a URL. kDatasetInvalid: nothing that a source reads (lists what was looked for), or an LMDB
/// that headrace pack did not write.
Result<Proposal> propose(const std::filesystem::path& path);

/// Adapts the transforms of `stream`, which were proposed before an image was opened, to the images of its
/// source: pairs are cropped together, and small images are not enlarged. True: `config` has changed.
bool fit(Proposal& proposal, const std::string& stream, const Source& source);

/// A proposal's `config`, to be saved in `folder`: paths of what is in the folder become relative to it.
std::string relative_to(const std::filesystem::path& folder, std::string config);

/// What the proposal does not cover: its notes and, for a folder, its other content.
std::vector<std::string> notes_on(const std::filesystem::path& path, const Proposal& proposal);

}  // namespace headrace::server::source
