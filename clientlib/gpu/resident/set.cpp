#include "clientlib/gpu/resident/set.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "clientlib/base/human.h"
#include "clientlib/gpu/copy/ring_copy.h"
#include "clientlib/wire/object_reader.h"

namespace headrace::gpu {
namespace {

/// Time between two attempts to attach to the upload stream.
constexpr std::chrono::milliseconds kPause{50};

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
        fmt::format(
            "stream '{}': its dataset of {} samples needs {} on {}, and batches need {}: {}; "
            "free memory there, use fewer fields or samples, or leave `residence: gpu` out of the stream, so "
            "that batches come through the ring",
            stream.info().name, stream.info().samples, human_bytes(plan->bytes), device.name(),
            human_bytes(beside), why));
  };
  const auto room = device.room();
  if (!room) return fail(room.error());
  if (*room < plan->bytes || *room - plan->bytes < beside)
    return too_large(fmt::format("{} are free", human_bytes(*room)));
  auto memory = engine.allocate(plan->bytes);
  if (!memory) return too_large(memory.error().message);
  plan->job.blocks_at_once = device.blocks_at_once(plan->job);
  return ResidentSet(stream, std::move(*plan), engine, std::move(*memory));
}

Result<void> ResidentSet::open(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt) {
  auto client = Client::connect({.address = address_, .allow_uids = allow_uids_, .interrupt = interrupt});
  if (!client) return fail(client.error());
  const auto begun = std::chrono::steady_clock::now();
  auto stream = client->open(opening_);
  // Retry these: other loaders are uploading, or the server has not yet noticed that our last upload ended.
  const auto passes = [](ErrorCode code) {
    return code == ErrorCode::kRingFull || code == ErrorCode::kClientNameTaken;
  };
  while (!stream && passes(stream.error().code) && std::chrono::steady_clock::now() - begun < timeout &&
         !(interrupt && interrupt())) {
    std::this_thread::sleep_for(kPause);
    stream = client->open(opening_);
  }
  if (!stream) return fail(in_terms_of_the_set(stream.error()));
  const StreamInfo& from = stream->info();
  if (from.fingerprint.dataset != info_.fingerprint.dataset)
    return fail(ErrorCode::kFingerprintMismatch,
                fmt::format("stream '{}': the dataset changed after the loader was opened: expected "
                            "fingerprint {}, found {}; open the loader again",
                            info_.name, info_.fingerprint.dataset, from.fingerprint.dataset));
  if (from.fingerprint.plan != info_.residence->plan ||
      from.fingerprint.algorithm != info_.fingerprint.algorithm)
    return fail(
        ErrorCode::kFingerprintMismatch,
        fmt::format("stream '{}': the transforms before the upload changed after the loader was opened: "
                    "expected plan {} of algorithm {}, found plan {} of algorithm {}; open the loader again",
                    info_.name, info_.residence->plan, info_.fingerprint.algorithm, from.fingerprint.plan,
                    from.fingerprint.algorithm));
  bool same = from.samples == info_.samples && from.fields.size() == plan_.fields.size();
  for (std::size_t f = 0; same && f < from.fields.size(); ++f) same = from.fields[f] == plan_.fields[f].spec;
  if (!same)
    return fail(
        ErrorCode::kBadMessage,
        fmt::format("stream '{}': the server uploads other fields or another number of samples than it "
                    "described (expected {} fields and {} samples, found {} and {}); use a server and a "
                    "client of the same version",
                    info_.name, plan_.fields.size(), info_.samples, from.fields.size(), from.samples));
  from_.emplace(std::move(*stream));
  return {};
}

// The user configured `info_.name`; the server added the upload stream, its name and its rules.
Error ResidentSet::in_terms_of_the_set(const Error& error) const {
  std::string message = error.message;
  for (std::size_t at = 0; (at = message.find(opening_.stream, at)) != std::string::npos;
       at += info_.name.size())
    message.replace(at, opening_.stream.size(), info_.name);
  switch (error.code) {
    case ErrorCode::kStreamFailed:
      // The stream that failed is the one for uploads; the user's own may still run.
      return {
          error.code,
          fmt::format("stream '{}': cannot upload its dataset: {} ('{}' is the server's own stream for the "
                      "upload, in which a bad sample cannot be replaced: repair the dataset and restart the "
                      "server, or leave `residence: gpu` out)",
                      info_.name, error.message, opening_.stream)};
    case ErrorCode::kNoSuchStream:
      return {
          error.code,
          fmt::format("stream '{}' no longer has `residence: gpu` in the server's configuration: open the "
                      "loader again",
                      info_.name)};
    case ErrorCode::kFingerprintMismatch:
      return {error.code,
              fmt::format("stream '{}': the server's configuration changed during the upload of its dataset "
                          "({}): open the loader again",
                          info_.name, message)};
    default:
      return {error.code, fmt::format("stream '{}': cannot upload its dataset: {}", info_.name, message)};
  }
}

Result<void> ResidentSet::upload(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt,
                                 const std::function<void(std::uint64_t)>& progress) {
  if (complete_) return {};
  if (!from_)
    if (auto opened = open(timeout, interrupt); !opened) return opened;
  from_->set_interrupt(interrupt);
  while (uploaded_ < info_.samples) {
    // Keep one lease free: without one the stream copies the batch, which would then be copied again.
    while (from_->live_views() + 1 >= from_->max_leases() && !flying_.empty())
      if (auto ended = settle(timeout, interrupt); !ended) return ended;
    auto batch = from_->next(timeout);
    if (!batch) return fail(in_terms_of_the_set(batch.error()));
    if (!*batch)
      return fail(ErrorCode::kInternal,
                  fmt::format("stream '{}': the upload of its dataset ended after {} of {} samples",
                              info_.name, uploaded_, info_.samples));
    if (auto taken = take(std::move(**batch)); !taken) {
      // The upload stream is past this batch: start the upload again.
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
      return fail(ErrorCode::kTimeout,
                  fmt::format("stream '{}': interrupted during the upload of its dataset", info_.name));
    if (std::chrono::steady_clock::now() - begun > timeout)
      return fail(
          ErrorCode::kTimeout,
          fmt::format(
              "stream '{}': no copy of its dataset to {} finished within {:.0f} s: earlier work on the "
              "device's streams may be blocking it; look for a kernel that does not end, or raise the "
              "timeout (Python: batch_timeout)",
              info_.name, engine_->device_name(), std::chrono::duration<double>(timeout).count()));
  }
  if (auto ended = first.wait(); !ended) return ended;
  flying_.pop_front();
  return {};
}

Result<void> ResidentSet::take(BatchView batch) {
  const std::uint32_t rows = batch.rows();
  if (rows > info_.samples - uploaded_ || batch.valid_rows() != rows)
    return fail(ErrorCode::kBadMessage,
                fmt::format("stream '{}': the server uploads more than the {} samples of its dataset; use a "
                            "server and a client of the same version",
                            info_.name, info_.samples));
  std::vector<Transfer> transfers;
  for (const SetPlan::Field& field : plan_.fields) {
    const auto view = batch.field(field.spec.name);
    if (!view) return fail(view.error());
    const std::size_t row = row_bytes(field.spec);
    if (view->bytes() != row * rows)
      return fail(ErrorCode::kBadMessage,
                  fmt::format("stream '{}', field '{}': the server uploads {} bytes for {} rows: expected {} "
                              "bytes a row; use a server and a client of the same version",
                              info_.name, field.spec.name, view->bytes(), rows, row));
    transfers.push_back({view->data, memory_.data() + field.offset + uploaded_ * row, view->bytes()});
  }
  for (std::uint32_t i = 0; i < rows; ++i) seen_.push_back(batch.sample_index(i));
  std::shared_ptr<const BatchView::Lease> lease = batch.lease();
  batch.release();
  const BatchView::Lease& leased = *lease;  // valid until the engine has taken `lease`
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
  engine_->release_orphans();  // unpins the ring of the upload: no later registration would do so
  complete_ = true;
  return {};
}

}  // namespace headrace::gpu
