#include "clientlib/client/session.h"

#include <fmt/format.h>

#include "clientlib/client/heartbeat.h"

namespace headrace::client {

Result<Session> open_session(const Address& server, const wire::OpenRequest& request,
                             ring::RingReader::Slots slots, const Deadline& deadline,
                             const Interrupt& interrupt) {
  auto answer = exchange(server, "open", wire::to_json(request), deadline, interrupt);
  if (!answer) return fail(answer.error());
  auto reply = wire::parse<wire::OpenReply>(answer->body);
  if (!reply) return fail(reply.error());
  auto attached = attach(server, reply->token, slots, deadline, interrupt);
  if (!attached) return fail(attached.error());
  if (*attached->attachment->fields != ring_fields(reply->stream))
    return fail(
        ErrorCode::kInternal,
        fmt::format(
            "stream '{}': the fields in the ring differ from those in the server's reply; install the same "
            "version on both sides",
            request.stream));
  keep_alive(attached->attachment);
  return Session{std::move(reply->stream), std::move(attached->reply), std::move(attached->attachment)};
}

}  // namespace headrace::client
