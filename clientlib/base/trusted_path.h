// Directories and files that no other user could have made or changed. They are opened without following a
// link in the last component and then examined through the descriptor. Parent directories are not examined:
// whoever can write to one can substitute another directory, but only one that a trusted user owns.
// Thread safety: all functions, any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "clientlib/base/unique_fd.h"
#include "headrace/error.h"

namespace headrace {

/// A descriptor (O_PATH) of a directory; a slash at the path's end does not make it follow a link.
/// kPermissionDenied: a symbolic link, writable by group or others, or of a user who is neither this
/// process's, root nor one of `owners`. kEnvironment: it cannot be opened or is no directory. Both name the
/// path; what to do is for the caller to add.
Result<UniqueFd> open_trusted_directory(const std::string& path,
                                        const std::vector<std::uint32_t>& owners = {});

/// A regular file, opened with `flags`; O_CREAT makes it with `mode`. To be written it must have one name
/// only. `name` is relative to `directory` (AT_FDCWD: to the working directory). Errors as above.
Result<UniqueFd> open_trusted_file(int directory, const std::string& name, int flags, mode_t mode = 0600);

}  // namespace headrace
