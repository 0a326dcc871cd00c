// One attachment to one lane of one server: the socket that is the session, and the mapped ring.
//
// Held by shared_ptr from the stream and from every view on a slot, so that a slot stays leased, and its
// memory mapped, for as long as anybody can read it. The session ends when the last of them goes.
//
// Thread safety: any thread; the ring's own rules apply to `reader`.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "clientlib/client/address.h"
#include "clientlib/client/deadline.h"
#include "clientlib/client/fork_guard.h"
#include "clientlib/ring/ring_reader.h"
#include "clientlib/ring/unique_fd.h"
#include "headrace/error.h"

namespace headrace::client {

struct Attachment {
  Attachment(ring::UniqueFd session, std::shared_ptr<ring::RingReader> ring)
      : socket(std::move(session)),
        reader(std::move(ring)),
        fields(std::make_shared<const std::vector<FieldSpec>>(reader->fields())) {}
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  ForkGuard fork;
  ring::UniqueFd socket;
  std::shared_ptr<ring::RingReader> reader;
  std::shared_ptr<const std::vector<FieldSpec>> fields;
  std::atomic<bool> lost{
      false};  ///< the server closed the session; the flag that interrupts RingReader::next
  std::atomic<std::uint32_t> live_views{0};  ///< leases that views hold
  /// The loop changes its private batches: it gets copies, not copy-on-write views.
  std::atomic<bool> writes_to_batches{false};
};

/// Gives `token` to the attach socket, with this process's pidfd, and maps what comes back. Both waits end at
/// the deadline (kServerUnreachable) and by `interrupt` (kTimeout). kPermissionDenied: another user listens.
Result<std::shared_ptr<Attachment>> attach(const Address& server, const std::string& token,
                                           std::uint32_t lane, ring::RingReader::Slots slots,
                                           const Deadline& deadline, const Interrupt& interrupt);

}  // namespace headrace::client
