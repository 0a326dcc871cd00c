#include "clientlib/client/private_views.h"

#include <pthread.h>

#include <mutex>
#include <set>

#include "clientlib/client/lease.h"

namespace headrace::client {
namespace {

using Lease = BatchView::Lease;

/// If a loop writes to more than one page in 32 of its batch, copying the batch is cheaper: a page fault
/// costs more than copying a page (tests/bench/README.md).
constexpr std::size_t kFewPages = 32;

struct Views {
  std::mutex mutex;
  std::set<Lease*> live;  // guarded by mutex
};

/// Never destroyed: views may be destroyed after all static objects.
Views& views() {
  static auto& all = *new Views;
  return all;
}

void own_pages(Lease& lease) {
  if (lease.settled) return;
  ring::PrivatePages::own_all(lease.pages);
  lease.settled = true;
}

void give_slot_back(Lease& lease) {
  const std::shared_ptr<Attachment> attachment = std::move(lease.attachment);
  attachment->live_views.fetch_sub(1, std::memory_order_relaxed);
  attachment->reader->ack(lease.grant);
}

void before_fork() {
  views().mutex.lock();
  for (Lease* lease : views().live) own_pages(*lease);
}

void after_fork() {
  views().mutex.unlock();
}

[[maybe_unused]] const int g_locked_at_fork = ::pthread_atfork(before_fork, after_fork, after_fork);

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
  lease.mapping->end_view(lease.grant.slot);
  if (!lease.attachment || lease.attachment->fork.forked()) return;
  // Regardless of PrivatePages::faults(), which does not count writes by a device or by another process.
  const std::size_t own = lease.mapping->drop_private_pages(lease.grant.slot);
  if (!lease.settled && own > lease.pages.size() / ring::page_size() / kFewPages)
    lease.attachment->writes_to_batches.store(true, std::memory_order_relaxed);
  give_slot_back(lease);
}

void settle_private_views(const Attachment& attachment) {
  const std::lock_guard lock(views().mutex);
  for (Lease* lease : views().live) {
    if (lease->attachment.get() != &attachment) continue;
    own_pages(*lease);
    give_slot_back(*lease);
  }
}

}  // namespace headrace::client
