#include "server/exec/stream.h"

#include <fmt/format.h>

#include <new>
#include <string_view>
#include <utility>

#include "server/log/log.h"

namespace headrace::server::exec {
namespace {

/// Rings larger than this are written with non-temporal stores, because they do not fit into the part of the
/// last-level cache that other processes do not use.
constexpr std::size_t kBeyondCaches = 16 << 20;

std::unique_ptr<FedSupply> fed_supply_of(const StreamSetup& setup) {
  if (!setup.feed) return nullptr;
  return std::make_unique<FedSupply>(setup.info.name, setup.info.batch_size, setup.feed);
}

}  // namespace

Stream::Stream(StreamSetup setup, std::unique_ptr<ring::RingWriter> ring)
    : setup_(std::move(setup)),
      // Not for streams that mix rows: the mix reads the rows again soon, from the cache.
      streamed_(!setup_.maker->mixes() && bytes_per_row(*setup_.maker) * setup_.info.batch_size >
                                              kBeyondCaches / publish::Ledger::slots_needed(setup_.ledger)),
      ring_(std::move(ring)),
      failure_([this](const Error& reason) { announce_stop(reason); }),
      status_(setup_.info.name, failure_, *ring_, *setup_.maker),
      fed_(fed_supply_of(setup_)),
      lanes_(setup_.info, {setup_.ledger, setup_.wait_for, setup_.wait_timeout, setup_.patience}, *ring_,
             supply(), status_, *setup_.maker, setup_.gate ? setup_.gate : std::make_shared<StartGate>()),
      filler_(*this,
              {*setup_.maker, failure_, rows_per_slice(*setup_.maker, setup_.info.batch_size), streamed_},
              *ring_, supply(), lanes_) {
  publish_figures();
}

Stream::~Stream() = default;

ring::RingWriter::Options ring_options(const StreamSetup& setup, std::uint32_t clients) {
  return {.name = setup.info.name,
          .fields = ring_fields(setup.info),
          .rows = setup.info.most_rows(),
          .slots = publish::Ledger::slots_needed(setup.ledger, clients),
          .lanes = setup.ledger.lanes,
          .data_access = setup.data_access,
          .checksums = setup.checksums};
}

Result<std::unique_ptr<Stream>> Stream::create(StreamSetup setup) {
  auto ring = ring::RingWriter::create(ring_options(setup, setup.ledger.lanes),
                                       publish::Ledger::slots_needed(setup.ledger, 1));
  if (!ring) {
    Error error = ring.error();
    error.message = fmt::format("stream `{}`: {}{}", setup.info.name, error.message,
                                error.code == ErrorCode::kNotEnoughMemory
                                    ? ": lower batch_size, ring.prefetch or ring.max_leases of the stream"
                                    : "");
    return fail(std::move(error));
  }
  return std::unique_ptr<Stream>(new Stream(std::move(setup), std::move(*ring)));
}

Result<void> Stream::make_room(std::uint32_t clients) const {
  const std::uint32_t most = std::min(clients, setup_.ledger.lanes);
  auto room = ring_->allocate(publish::Ledger::slots_needed(setup_.ledger, most));
  if (!room)
    room.error().message = fmt::format(
        "stream `{}`, slots for client {} of at most {}: {}: lower batch_size or ring.max_leases of the "
        "stream, or detach a client",
        info().name, most, setup_.ledger.lanes, room.error().message);
  return room;
}

void Stream::announce_stop(const Error& reason) const {
  log::error("stream `{}` stopped, until the server is restarted: {}", info().name, reason.to_string());
  if (auto* const reads = maker().read_ahead()) reads->clear();
}

void Stream::stop_after(const char* doing, const char* error) noexcept try {
  const bool memory = std::string_view(error) == std::bad_alloc().what();
  stop({memory ? ErrorCode::kNotEnoughMemory : ErrorCode::kInternal,
        fmt::format("{}: {}{}", doing, error,
                    memory ? ": no memory is left: free some, or raise the limit" : "")});
} catch (const std::exception&) {
  failure_.mark();  // no memory for a message: stop without one
}

void Stream::publish_figures() {
  StreamFigures figures;
  lanes_.publish(figures);
  filler_.publish(figures);
  if (figures == published_) return;
  status_.publish(figures);
  published_ = figures;
}

std::shared_ptr<FillJob> Stream::next_job(std::uint64_t now_ns) {
  if (failed() || lanes_.draining()) return nullptr;
  auto job = filler_.next_job(now_ns);
  publish_figures();
  return job;
}

std::string Stream::obstacle_to_orders() const {
  if (feed()) return "its batches come from a feed";
  if (maker().mixes()) return "its rows are mixed with one another";
  for (std::size_t f = 0; f < maker().fields().size(); ++f) {
    const FieldSpec& field = maker().fields()[f];
    if (field.kind == FieldKind::kRagged)
      return fmt::format("the rows of field `{}` have different sizes", field.name);
    if (maker().for_device(f)) return fmt::format("a device transforms field `{}`", field.name);
  }
  return {};
}

void Stream::complete(FillJob& job, metrics::StreamCounters& counters) {
  filler_.complete(job, counters);
  // The worker's next check publishes the figures.
}

bool Stream::pump(std::uint64_t now_ns) {
  const bool taken = lanes_.take_acks();
  const bool granted = !failed() && lanes_.write_grants(now_ns);
  lanes_.update_order(now_ns);
  if (failed() || fed_) lanes_.announce_failure();  // a fed stream also ends without a failure
  publish_figures();
  return taken || granted;
}

void Stream::close(std::uint32_t lane, std::uint64_t now_ns) {
  if (lanes_.close(lane, now_ns)) filler_.look_ahead().drop_unwanted();
}

wire::CursorSetReply Stream::seek(std::uint32_t lane, const Cursor& cursor,
                                  const std::optional<wire::DamagedSlot>& damaged) {
  auto reply = damaged ? lanes_.request_again(lane, cursor, *damaged) : lanes_.seek(lane, cursor);
  filler_.look_ahead().drop_unwanted();
  return reply;
}

std::vector<std::uint32_t> Stream::fence_stuck(std::uint64_t now_ns, std::uint64_t evict_after_ns) {
  auto fenced = lanes_.fence_stuck(now_ns, evict_after_ns);
  if (!fenced.empty()) filler_.look_ahead().drop_unwanted();
  return fenced;
}

void Stream::drain() {
  lanes_.drain();
  filler_.look_ahead().clear();
}

void Stream::beat(std::uint64_t now_ns, std::uint64_t grace_ns) {
  ring_->beat();
  if (!failed()) lanes_.report_detachments(now_ns);
  if (now_ns > grace_ns) lanes_.forget_groups(now_ns - grace_ns);
}

void Stream::batches_arrived() {
  if (fed_) lanes_.ledger().set_end(*fed_->end());
}

void Stream::end_feed(std::string why, bool done) {
  if (fed_) fed_->finish(std::move(why), done);
}

bool Stream::served_to_end() const {
  return fed_ && fed_->all_built() && !filler_.filling() && !lanes_.expects_client() && lanes_.all_served();
}

}  // namespace headrace::server::exec
