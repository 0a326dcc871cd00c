// The metrics of sources' caches, labelled by `source` and `kind`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/assembly/caches.h"
#include "server/session/families.h"

namespace headrace::server::session {

/// `headrace_cache_…`; adds nothing if there are no caches.
void add_caches(Families& families, const assembly::CachesInUse& caches);
/// The same as an array of objects, for `stats`.
nlohmann::json caches_as_json(const assembly::CachesInUse& caches);

}  // namespace headrace::server::session
