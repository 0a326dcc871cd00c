// `extends: train` in a stream: the keys of another stream apply where this one has none.
#pragma once

#include "server/config/document.h"

namespace headrace::server::config {

/// Replaces `extends` in every stream by the keys that it inherits, and reports unknown names and cycles. The
/// maps `output`, `ring` and `sharing` are merged key by key; other values are replaced as a whole. An empty
/// key (`mix:`) restores the default. Inherited values keep their places in the text.
void apply_extends(Document& document);

}  // namespace headrace::server::config
