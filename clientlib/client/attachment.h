// One attachment to one lane of one server: the session's socket, and the mapped ring.
//
// The stream and every view on a slot share ownership, so that a slot stays leased and mapped for as long as
// a view on it exists. The session ends with the last owner.
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
#include "clientlib/wire/protocol.h"
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
  std::atomic<bool> lost{false};  ///< the server closed the session; this flag interrupts RingReader::next
  std::atomic<std::uint32_t> live_views{0};  ///< views that hold a lease
  /// The loop writes to its private batches: it gets copies instead of copy-on-write views.
  std::atomic<bool> writes_to_batches{false};
};

struct Attached {
  wire::AttachReply reply;
  std::shared_ptr<Attachment> attachment;
};

/// Sends `token` and this process's pidfd to the attach socket, and maps the segments that the server sends.
/// Waits until the deadline (kServerUnreachable) or `interrupt` (kTimeout). kPermissionDenied: the server's
/// user is not trusted.
Result<Attached> attach(const Address& server, const std::string& token, ring::RingReader::Slots slots,
                        const Deadline& deadline, const Interrupt& interrupt);

}  // namespace headrace::client
