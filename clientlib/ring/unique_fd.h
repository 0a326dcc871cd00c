// The ring's name for clientlib/base/unique_fd.h.
#pragma once

#include "clientlib/base/unique_fd.h"

namespace headrace::ring {

using headrace::UniqueFd;

}  // namespace headrace::ring
