// Directories and files that no other user could have made or changed. They are opened without following a
// link in the last component and then examined through the descriptor. Parent directories are not examined: a
// user with write access to one can substitute another directory, but only one that a trusted user owns.
// Thread safety: all functions, any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "clientlib/base/unique_fd.h"
#include "headrace/error.h"

namespace headrace {

/// A descriptor (O_PATH) of a directory. A link is not followed, even if the path ends in a slash.
/// kPermissionDenied: a symbolic link, a directory that group or others can write to, or one whose owner is
/// neither this process's user, root nor one of `owners`. kEnvironment: it cannot be opened, or is not a
/// directory. Both errors name the path; the caller adds the remedy.
Result<UniqueFd> open_trusted_directory(const std::string& path,
                                        const std::vector<std::uint32_t>& owners = {});

/// Opens a regular file with `flags`; O_CREAT creates it with `mode`. A file that is opened for writing must
/// have one hard link only. `name` is relative to `directory` (AT_FDCWD: the working directory). Errors as
/// above.
Result<UniqueFd> open_trusted_file(int directory, const std::string& name, int flags, mode_t mode = 0600);

}  // namespace headrace
