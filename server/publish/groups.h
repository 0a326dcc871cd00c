// Groups: the ranks of one job. Who may attach as which rank, and where each begins.
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
  std::optional<std::uint32_t> lane;  ///< set while attached or about to attach
  std::string client;
  std::int64_t pid = 0;
  Cursor granted;   ///< of a detached member: where it stood
  Cursor consumed;  ///< the server's memory: what `resume_server` continues from
  std::uint64_t detached_ns = 0;
};

struct Group {
  std::uint32_t world_size = 1;
  Cursor start;
  std::unique_ptr<sampler::EpochPlan> plan;
  std::map<std::uint32_t, Member> members;  ///< by rank

  [[nodiscard]] bool anyone_attached() const;
  /// The cursor that every rank has consumed up to: the hindmost one's, `start` while ranks are missing.
  [[nodiscard]] Cursor consumed_by_all() const;
  [[nodiscard]] std::uint64_t last_seen_ns() const;
};

/// Thread safety: the publisher's lock.
class Groups {
 public:
  Groups(Delivery delivery, std::uint64_t samples, std::uint32_t batch_size, LastBatch last)
      : delivery_(delivery), samples_(samples), batch_size_(batch_size), last_(last) {}

  /// Checks that this rank may attach, makes or renews its group, and says where it begins. `foremost`: the
  /// cursor of the foremost attached lane of the stream, if any. A group of which nobody is left begins anew;
  /// with `resume_server` where all of its ranks had come, so that they stay at one cursor whoever returns
  /// first. kGroupMismatch, kRankTaken, kInvalidArgument.
  struct Admission {
    Group* group;
    Member* member;
    Cursor begin;
  };
  Result<Admission> admit(const wire::OpenRequest& request, const std::optional<Cursor>& foremost);
  /// The member holding this client name, if attached.
  [[nodiscard]] const Member* holder_of(const std::string& client) const;
  /// Forgets groups of which nobody was attached since `before_ns`.
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
