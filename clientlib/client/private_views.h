// The views of this process that may be written to, copy-on-write. Each stands on a leased slot whose
// untouched pages are the server's; a view gets along without its slot once all its pages are its own
// (settled).
//
// They are settled, for one pass over their pages, before a fork (else the child would see the parent's slots
// being filled again) and when their stream ends or is fenced (else a kept batch would keep its session).
//
// Thread safety: any thread.
#pragma once

#include "clientlib/client/attachment.h"
#include "headrace/client.h"

namespace headrace::client {

/// A view is put here when it is made and taken out by its end; the mutex guards what `settle` changes in it.
void enter_private_view(BatchView::Lease& lease);
/// Gives the slot back, without what was written to it. In a forked child, whose pages are settled, nothing
/// but forgetting it.
void end_private_view(BatchView::Lease& lease);

/// All views on this attachment: they keep their contents and end their leases.
void settle_private_views(const Attachment& attachment);

}  // namespace headrace::client
