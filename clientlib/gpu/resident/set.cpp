#include "clientlib/gpu/resident/set.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "clientlib/gpu/copy/ring_copy.h"
#include "clientlib/wire/object_reader.h"

namespace headrace::gpu {
namespace {

/// Between two tries to get a place in the upload's ring.
constexpr std::chrono::milliseconds kPause{50};

double megabytes(std::size_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

}  // namespace

ResidentSet::ResidentSet(const Stream& stream, SetPlan plan, CopyEngine& engine, DeviceBuffer memory)
    : engine_(&engine),
      plan_(std::move(plan)),
      info_(stream.info()),
      address_(stream.address()),
      allow_uids_(stream.allow_uids()),
      memory_(std::move(memory)) {
  const OpenOptions& options = stream.options();
  opening_.stream = info_.residence->upload;
  if (constexpr std::string_view kEnd = "-upload";
      !options.client.empty() && options.client.size() + kEnd.size() <= wire::kMaxName)
    opening_.client = options.client + std::string(kEnd);
  opening_.reconnect_timeout = options.reconnect_timeout;
  opening_.warn = options.warn;
  plan_.place(memory_.data());
}

Result<ResidentSet> ResidentSet::allocate(const Stream& stream, const BatchLayout& layout, CopyEngine& engine,
                                          Device& device, std::size_t beside) {
  auto plan = plan_set(stream.info(), layout);
  if (!plan) return fail(plan.error());
  const auto too_large = [&](const std::string& why) {
    return fail(
        ErrorCode::kNotEnoughMemory,
        fmt::format("stream '{}': its set of {} samples takes {:.1f} MB on {}, and batches {:.1f} MB, "
                    "{}: make room there, leave fields or samples out, or leave `residence: gpu` out "
                    "of the stream, so that batches come through the ring",
                    stream.info().name, stream.info().samples, megabytes(plan->bytes), device.name(),
                    megabytes(beside), why));
  };
  const auto room = device.room();
  if (!room) return fail(room.error());
  if (*room < plan->bytes || *room - plan->bytes < beside)
    return too_large(fmt::format("and {:.1f} MB are free", megabytes(*room)));
  auto memory = engine.allocate(plan->bytes);
  if (!memory) return too_large(memory.error().message);
  return ResidentSet(stream, std::move(*plan), engine, std::move(*memory));
}

Result<void> ResidentSet::open(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt) {
  auto client = Client::connect({.address = address_, .allow_uids = allow_uids_, .interrupt = interrupt});
  if (!client) return fail(client.error());
  const auto begun = std::chrono::steady_clock::now();
  auto stream = client->open(opening_);
  // Others upload, or the server has not heard yet that an upload of ours was broken off: that passes.
  const auto passes = [](ErrorCode code) {
    return code == ErrorCode::kRingFull || code == ErrorCode::kClientNameTaken;
  };
  while (!stream && passes(stream.error().code) && std::chrono::steady_clock::now() - begun < timeout &&
         !(interrupt && interrupt())) {
    std::this_thread::sleep_for(kPause);
    stream = client->open(opening_);
  }
  if (!stream && passes(stream.error().code))
    return fail(stream.error().code, fmt::format("stream '{}', whose set is to be uploaded: {}", info_.name,
                                                 stream.error().message));
  if (!stream) return fail(in_terms_of_the_set(stream.error()));
  const StreamInfo& from = stream->info();
  if (from.fingerprint.dataset != info_.fingerprint.dataset)
    return fail(ErrorCode::kFingerprintMismatch,
                fmt::format("stream '{}': the dataset changed while its set was to be uploaded (now {}, then "
                            "{}): open the loader again",
                            info_.name, from.fingerprint.dataset, info_.fingerprint.dataset));
  if (from.fingerprint.plan != info_.residence->plan ||
      from.fingerprint.algorithm != info_.fingerprint.algorithm)
    return fail(
        ErrorCode::kFingerprintMismatch,
        fmt::format("stream '{}': what is done to its set before it is uploaded changed since the loader "
                    "was opened: open it again",
                    info_.name));
  bool same = from.samples == info_.samples && from.fields.size() == plan_.fields.size();
  for (std::size_t f = 0; same && f < from.fields.size(); ++f) same = from.fields[f] == plan_.fields[f].spec;
  if (!same)
    return fail(ErrorCode::kBadMessage,
                fmt::format("stream '{}' gives other fields or samples than it says", from.name));
  from_.emplace(std::move(*stream));
  return {};
}

// Nobody has written the name of the upload's stream, nor its rules.
Error ResidentSet::in_terms_of_the_set(const Error& error) const {
  switch (error.code) {
    case ErrorCode::kStreamFailed:
      return {error.code,
              fmt::format(
                  "stream '{}': its set cannot be resident on the device, where no sample stands in for a "
                  "bad one: mend it and restart the server, or leave `residence: gpu` out ({})",
                  info_.name, error.message)};
    case ErrorCode::kNoSuchStream:
      return {error.code,
              fmt::format("stream '{}' is no longer `residence: gpu` in the server's configuration: open "
                          "the loader again",
                          info_.name)};
    case ErrorCode::kFingerprintMismatch:
      return {error.code,
              fmt::format("stream '{}': the server's configuration changed while its set was uploaded: "
                          "open the loader again ({})",
                          info_.name, error.message)};
    default:
      return error;
  }
}

Result<void> ResidentSet::upload(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt,
                                 const std::function<void(std::uint64_t)>& progress) {
  if (complete_) return {};
  if (!from_)
    if (auto opened = open(timeout, interrupt); !opened) return opened;
  from_->set_interrupt(interrupt);
  while (uploaded_ < info_.samples) {
    // A view less than there are leases: the stream would make a copy, which would be copied again.
    while (from_->live_views() + 1 >= from_->max_leases() && !flying_.empty())
      if (auto ended = settle(timeout, interrupt); !ended) return ended;
    auto batch = from_->next(timeout);
    if (!batch) return fail(in_terms_of_the_set(batch.error()));
    if (!*batch)
      return fail(ErrorCode::kInternal, fmt::format("stream '{}' ended after {} of {} samples",
                                                    from_->info().name, uploaded_, info_.samples));
    if (auto taken = take(std::move(**batch)); !taken) {
      // The batch is gone from the stream: all of it again.
      from_.reset();
      flying_.clear();
      seen_.clear();
      uploaded_ = 0;
      return taken;
    }
    progress(uploaded_);
  }
  return finish(timeout, interrupt);
}

Result<void> ResidentSet::settle(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt) {
  const auto begun = std::chrono::steady_clock::now();
  const Completion& first = flying_.front();
  while (!first.done()) {
    if (auto ended = first.wait_for(kPause); !ended) return ended;
    if (first.done()) break;
    if (interrupt && interrupt())
      return fail(ErrorCode::kTimeout, "interrupted while the set was copied to the device");
    if (std::chrono::steady_clock::now() - begun > timeout)
      return fail(
          ErrorCode::kTimeout,
          fmt::format("stream '{}': the copies of its set to {} do not end; what is queued on the device's "
                      "streams has not come to them for {:.0f} s",
                      info_.name, engine_->device_name(), std::chrono::duration<double>(timeout).count()));
  }
  if (auto ended = first.wait(); !ended) return ended;
  flying_.pop_front();
  return {};
}

Result<void> ResidentSet::take(BatchView batch) {
  const std::uint32_t rows = batch.rows();
  if (rows > info_.samples - uploaded_ || batch.valid_rows() != rows)
    return fail(ErrorCode::kBadMessage, fmt::format("stream '{}' gives more than the {} samples of its set",
                                                    from_->info().name, info_.samples));
  std::vector<Transfer> transfers;
  for (const SetPlan::Field& field : plan_.fields) {
    const auto view = batch.field(field.spec.name);
    if (!view) return fail(view.error());
    const std::size_t row = row_bytes(field.spec);
    if (view->bytes() != row * rows)
      return fail(ErrorCode::kBadMessage,
                  fmt::format("stream '{}': field '{}' has {} bytes in {} rows", from_->info().name,
                              field.spec.name, view->bytes(), rows));
    transfers.push_back({view->data, memory_.data() + field.offset + uploaded_ * row, view->bytes()});
  }
  for (std::uint32_t i = 0; i < rows; ++i) seen_.push_back(batch.sample_index(i));
  std::shared_ptr<const BatchView::Lease> lease = batch.lease();
  batch.release();
  const BatchView::Lease& leased = *lease;  // until it is handed on
  auto copied = copy_leased(*engine_, leased, [&] { return engine_->copy(transfers, std::move(lease)); });
  if (!copied) return fail(copied.error());
  flying_.push_back(std::move(*copied));
  while (flying_.front().done() && flying_.size() > 1) flying_.pop_front();
  uploaded_ += rows;
  return {};
}

Result<void> ResidentSet::finish(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt) {
  while (!flying_.empty())
    if (auto ended = settle(timeout, interrupt); !ended) return ended;
  bool plain = true;
  for (std::uint64_t i = 0; i < seen_.size(); ++i) plain = plain && seen_[i] == i;
  if (plain) seen_ = {};
  indices_ = std::make_shared<const std::vector<std::uint64_t>>(std::move(seen_));
  from_.reset();
  engine_->release_orphans();  // the upload's ring: nothing is registered after it, which would unpin it
  complete_ = true;
  return {};
}

}  // namespace headrace::gpu
