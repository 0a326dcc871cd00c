// `extends: train` in a stream: the keys of another stream apply where this one has none.
#pragma once

#include "server/config/document.h"

namespace headrace::server::config {

/// Replaces `extends` in every stream by what it stands for, and reports names that lead nowhere or in a
/// cycle. A map of `output`, `ring` or `sharing` is taken over key by key, anything else as a whole; an
/// empty key (`mix:`) takes nothing over. Inherited values keep their places in the text.
void apply_extends(Document& document);

}  // namespace headrace::server::config
