#include "clientlib/client/private_views.h"

#include <pthread.h>

#include <mutex>
#include <set>

#include "clientlib/client/lease.h"

namespace headrace::client {
namespace {

using Lease = BatchView::Lease;

/// A loop that has written to more than one page in 32 of its batch is better served by copies: a page costs
/// more than its bytes (tests/bench/README.md).
constexpr std::size_t kFewPages = 32;

struct Views {
  std::mutex mutex;
  std::set<Lease*> live;  // guarded by mutex
};

/// Never destroyed: views may end after everything else.
Views& views() {
  static auto& all = *new Views;
  return all;
}

void take_pages(Lease& lease) {
  if (lease.settled) return;
  ring::PrivatePages::take(lease.pages);
  lease.settled = true;
}

void give_slot_back(Lease& lease) {
  const std::shared_ptr<Attachment> attachment = std::move(lease.attachment);
  attachment->live_views.fetch_sub(1, std::memory_order_relaxed);
  attachment->reader->ack(lease.grant);
}

void before_fork() {
  views().mutex.lock();
  for (Lease* lease : views().live) take_pages(*lease);
}

void after_fork() {
  views().mutex.unlock();
}

[[maybe_unused]] const int g_registered = ::pthread_atfork(before_fork, after_fork, after_fork);

}  // namespace

void enter_private_view(Lease& lease) {
  const ring::RingReader& reader = *lease.attachment->reader;
  lease.pages = reader.memory(lease.grant.slot);
  lease.mapping = lease.attachment->reader;
  const std::lock_guard lock(views().mutex);
  views().live.insert(&lease);
}

void end_private_view(Lease& lease) {
  {
    const std::lock_guard lock(views().mutex);
    views().live.erase(&lease);
  }
  if (!lease.attachment || lease.attachment->fork.forked()) return;
  // Whatever PrivatePages::faults() says: a peer's or a device's writes into a batch are not in it.
  const std::size_t own = lease.mapping->drop_private_pages(lease.grant.slot);
  if (!lease.settled && own > lease.pages.size() / ring::page_size() / kFewPages)
    lease.attachment->writes_to_batches.store(true, std::memory_order_relaxed);
  give_slot_back(lease);
}

void settle_private_views(const Attachment& attachment) {
  const std::lock_guard lock(views().mutex);
  for (Lease* lease : views().live) {
    if (lease->attachment.get() != &attachment) continue;
    take_pages(*lease);
    give_slot_back(*lease);
  }
}

}  // namespace headrace::client
