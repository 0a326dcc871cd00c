// A stream's private half. `position` is the whole truth of where the loop is: the next batch that next()
// will return. Everything else can be rebuilt from it with any server over the same data.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "clientlib/client/buffer_pool.h"
#include "clientlib/client/session.h"
#include "headrace/client.h"

namespace headrace {

struct Stream::Impl {
  using Clock = std::chrono::steady_clock;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  // Fixed by open().
  client::Address server;
  std::chrono::milliseconds timeout{};  ///< of one exchange
  OpenOptions options;
  wire::OpenRequest identity;  ///< stream, group, rank, client name, start: what every re-attachment repeats
  StreamInfo info;
  client::ForkGuard fork;

  // The attachment; replaced when the server comes back.
  std::shared_ptr<client::Attachment> attachment;  ///< null: detached, the next call attaches again
  std::weak_ptr<client::Attachment>
      former;  ///< the one that was fenced or left: its session lasts as long as its views
  std::string session;
  std::uint32_t seek = 0;
  std::uint32_t max_leases = 0;
  std::uint64_t mapping_generation = 0;
  std::optional<Clock::time_point> lost_since;
  static constexpr const char *kDied = "died", *kStopped = "was stopped";
  const char* how_it_ended = kDied;  ///< how the server did

  // Where the loop is.
  Cursor position;
  std::uint64_t length = 0;  ///< batches of position.epoch from position.origin
  std::uint64_t epoch_length = 0;
  /// Of a live stream, which knows no seeking: batches before it are taken and dropped by the next next().
  Cursor skip_to;
  bool begun = false;  ///< next() returned a batch since the epoch began or since a seek

  // With Commits::kByCaller, any thread's; guarded by commit_mutex.
  std::mutex commit_mutex;
  std::shared_ptr<ring::RingReader> commit_reader;  ///< null: detached
  std::optional<Cursor> committed;

  client::Interrupt interrupt;
  std::atomic<std::uint64_t> waited_ns{0};
  std::set<std::string> warned;
  std::shared_ptr<client::BufferPool> pool;  ///< of private copies; made with the first

  // --- attaching (reattach.cpp)
  void adopt(client::Session opened);
  /// Attaches at `position` again, with backoff, until the reconnect timeout or the deadline.
  Result<void> reattach(const client::Deadline& deadline);
  Result<void> attach_again(const client::Deadline& deadline);
  /// The session has ended: the next call attaches again.
  void lose();
  /// Ends a session that the server may still hold: the same, once the views on it are gone.
  void leave();

  // --- iterating (stream.cpp)
  Result<std::optional<BatchView>> next(std::chrono::milliseconds limit);
  Result<ring::Grant> wait_for_grant(const client::Deadline& deadline);
  /// The batch that is due.
  Result<ring::Grant> take_grant(const client::Deadline& deadline);
  /// Up to `skip_to`, however often it is interrupted.
  Result<void> skip(const client::Deadline& deadline);
  BatchView view_of(const ring::Grant& grant);
  [[nodiscard]] bool private_batches() const { return options.batches == Batches::kPrivate; }
  [[nodiscard]] ring::RingReader::Slots slots() const;
  /// A copy-on-write view costs less than a copy.
  [[nodiscard]] bool copies_on_write(const ring::Grant& grant) const;
  /// What next() commits.
  void commit();
  void commit(const Cursor& consumed, std::chrono::nanoseconds waited);
  void let_commit(std::shared_ptr<ring::RingReader> reader);
  void begin_epoch(std::uint64_t epoch);
  Result<void> go_to(const Cursor& target);
  /// go_to() on a live stream: forward only.
  Result<void> leave_out(const Cursor& target);
  /// `position`, or where it will be once what is left out was skipped.
  [[nodiscard]] const Cursor& due() const { return std::max(position, skip_to); }
  /// Why the lane is kLaneFailed; a server that does not know the request leaves it to its log.
  [[nodiscard]] Error stream_failure() const;
  [[nodiscard]] Error timed_out(const client::Deadline& deadline) const;
  [[nodiscard]] bool interrupted() const { return interrupt && interrupt(); }
  /// True if it warned now.
  bool warn_of_copies();
  /// Once per kind; true if this is the time.
  bool warn(const std::string& kind, const std::string& text);
};

}  // namespace headrace
