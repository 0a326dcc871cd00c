// This process's copy-on-write views. Each maps a leased slot, and shows the server's bytes in all pages that
// were not written to. To settle a view means to copy all of its pages into this process: then it no longer
// needs its slot.
//
// Views are settled before a fork, because otherwise the child would see the parent's slots being refilled.
// They are also settled when their stream ends or is fenced, because otherwise a kept batch would keep the
// session open. Settling costs one pass over the view's pages.
//
// Thread safety: any thread.
#pragma once

#include "clientlib/client/attachment.h"
#include "headrace/client.h"

namespace headrace::client {

/// Registers a new view. A mutex guards the members that settle_private_views() changes.
void enter_private_view(BatchView::Lease& lease);
/// Unregisters a view, discards what was written to its slot, and ends the lease. In a forked child, whose
/// views are settled, only unregisters it.
void end_private_view(BatchView::Lease& lease);

/// Settles all views on this attachment: they keep their contents, and their leases end.
void settle_private_views(const Attachment& attachment);

}  // namespace headrace::client
