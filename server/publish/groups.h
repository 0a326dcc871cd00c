// Groups: the ranks of one job. Decides which rank may attach and where each begins.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "clientlib/wire/protocol.h"
#include "headrace/cursor.h"
#include "headrace/error.h"
#include "server/sampler/order.h"

namespace headrace::server::publish {

/// One rank of a group, attached or remembered.
struct Member {
  std::optional<std::uint32_t> lane;  ///< set while it is attached or about to attach
  std::string client;
  std::int64_t pid = 0;
  Cursor granted;   ///< for a detached member: its last position
  Cursor consumed;  ///< the server's memory: where `resume_server` continues
  std::uint64_t detached_ns = 0;
  bool served = false;  ///< it was granted a batch
};

struct Group {
  std::uint32_t world_size = 1;
  Cursor start;
  std::unique_ptr<sampler::EpochPlan> plan;
  std::map<std::uint32_t, Member> members;  ///< by rank

  [[nodiscard]] bool anyone_attached() const;
  /// The cursor up to which every rank has consumed: the hindmost rank's; `start` while ranks are missing.
  [[nodiscard]] Cursor consumed_by_all() const;
  [[nodiscard]] std::uint64_t last_seen_ns() const;
};

/// Thread safety: guarded by the publisher's lock.
class Groups {
 public:
  Groups(Delivery delivery, std::uint64_t samples, std::uint32_t batch_size, LastBatch last)
      : delivery_(delivery), samples_(samples), batch_size_(batch_size), last_(last) {}

  /// Checks that this rank may attach, creates or renews its group, and returns where it begins. `foremost`:
  /// the cursor of the stream's foremost attached lane, if any. A group without attached members begins anew;
  /// with `resume_server` only if all of its ranks had attached, so that they stay at one cursor, whichever
  /// returns first. kGroupMismatch, kRankTaken, kInvalidArgument.
  struct Admission {
    Group* group;
    Member* member;
    Cursor begin;
  };
  Result<Admission> admit(const wire::OpenRequest& request, const std::optional<Cursor>& foremost);
  /// The attached member with this client name, if any.
  [[nodiscard]] const Member* holder_of(const std::string& client) const;
  /// Forgets groups without an attached member since `before_ns`.
  void forget(std::uint64_t before_ns);
  [[nodiscard]] const std::map<std::string, Group>& all() const { return groups_; }

 private:
  Delivery delivery_;
  std::uint64_t samples_;
  std::uint32_t batch_size_;
  LastBatch last_;
  std::map<std::string, Group> groups_;
};

}  // namespace headrace::server::publish
