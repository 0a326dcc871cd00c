// Batches that do not match their checksum: ring.checksums in the server's configuration.
#include <fmt/format.h>

#include "clientlib/client/stream_impl.h"

namespace headrace {
namespace {

/// So many damaged copies of one batch can hardly be chance: the machine's memory is faulty.
constexpr int kTries = 3;

}  // namespace

Result<ring::Grant> Stream::Impl::take_intact(const client::Deadline& deadline) {
  for (int tries = 1;; ++tries) {
    const auto grant = take_grant(deadline);
    if (!grant || attachment->reader->intact(grant->slot)) return grant;
    const std::string batch = to_string(position);
    if (info.live) {  // nobody can make it again
      attachment->reader->ack(*grant);
      ++position.batch;
      return fail(
          ErrorCode::kEnvironment,
          fmt::format("stream '{}': {} was damaged in memory and is lost, because the stream is live "
                      "(headrace.share()); test the machine's memory. The next call continues after it",
                      info.name, batch));
    }
    if (tries == kTries) {
      abandon();
      return fail(ErrorCode::kEnvironment,
                  fmt::format("stream '{}': {} was damaged in memory {} times in a row: test the machine's "
                              "memory, then call next() again for the same batch",
                              info.name, batch, kTries));
    }
    if (auto requested = request_again(*grant); !requested) return fail(requested.error());
  }
}

Result<void> Stream::Impl::request_again(const ring::Grant& damaged) {
  const auto reply = request_move(position, wire::DamagedSlot{damaged.slot, damaged.generation});
  if (reply) {
    seek = reply->seek;
    attachment->reader->ack(damaged);
    return {};
  }
  const ErrorCode code = reply.error().code;
  if (code == ErrorCode::kTokenInvalid || code == ErrorCode::kServerLost) {
    lose();  // the next server makes the batch
    return {};
  }
  abandon();
  return fail(reply.error());
}

}  // namespace headrace
