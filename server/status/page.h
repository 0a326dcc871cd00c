// The status page.
#pragma once

namespace headrace::server::status {

/// HTML with its style and script: page.html.
const char* page();

}  // namespace headrace::server::status
