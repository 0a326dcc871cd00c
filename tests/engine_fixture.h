// An engine with streams over synthetic data, and its clients in this process. Only the sockets are missing.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "clientlib/ring/futex.h"
#include "clientlib/ring/ring_reader.h"
#include "server/exec/engine.h"
#include "server/source/formats/synthetic.h"

namespace headrace::testing {

using server::exec::Engine;
using server::exec::SampleMaker;
using server::exec::Stream;
using server::exec::StreamSetup;

/// Whether this process eventually uses almost no CPU time, which it never does if a thread spins.
inline bool comes_to_rest() {
  const auto cpu_ns = [] {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
  };
  for (int look = 0; look < 50; ++look) {
    const auto before = cpu_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    if (cpu_ns() - before < 8'000'000) return true;
  }
  return false;
}

/// A cache for each of `fields` fields.
inline server::cache::SampleCaches caches_of(const std::shared_ptr<server::cache::Arena>& arena,
                                             std::uint64_t samples, std::size_t fields = 1,
                                             std::chrono::nanoseconds patience = std::chrono::seconds(1)) {
  server::cache::SampleCaches::Part part;
  for (std::size_t f = 0; f < fields; ++f)
    part.fields.push_back(std::make_shared<server::cache::SampleCache>(arena, samples, patience));
  return server::cache::SampleCaches({std::move(part)});
}

/// Batches of up to `rows` with all fields of `source`.
inline std::shared_ptr<const SampleMaker> make_samples(
    const std::shared_ptr<const server::source::Source>& source, const server::exec::SampleOptions& options,
    const server::transform::StreamPlan& plan = {}, std::uint64_t rows = 64) {
  return std::make_shared<SampleMaker>(source, server::exec::plan_fields(*source, plan, rows).value(),
                                       options);
}

inline StreamSetup synthetic_stream(const std::string& name, std::uint64_t samples, std::uint32_t batch,
                                    std::uint32_t clients, Delivery delivery = Delivery::kBroadcast,
                                    std::size_t bytes = 24) {
  StreamSetup setup;
  setup.maker = make_samples(server::source::make_synthetic(samples, bytes).value(), {.seed = 5});
  setup.info = {.name = name,
                .delivery = delivery,
                .samples = samples,
                .batch_size = batch,
                .fields = setup.maker->fields()};
  setup.ledger = {.lanes = clients,
                  .max_leases = 3,
                  .prefetch = 4,
                  .broadcast = delivery == Delivery::kBroadcast,
                  .max_lag = 4};
  return setup;
}

inline std::unique_ptr<Engine> start_engine(
    std::vector<StreamSetup> setups, unsigned threads,
    std::vector<std::shared_ptr<server::cache::IdleTiler>> tilers = {}) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (StreamSetup& setup : setups) streams.push_back(Stream::create(std::move(setup)).value());
  auto engine = std::make_unique<Engine>(std::move(streams), threads, server::placement::Placement{},
                                         std::move(tilers));
  engine->start();
  return engine;
}

/// A client without sockets: opens and attaches through the engine, reads through the ring.
class RingClient {
 public:
  RingClient(Engine& engine, const std::string& stream, const std::string& name, std::uint32_t rank = 0,
             std::uint32_t world = 1)
      : engine_(engine), index_(engine.find(stream).value()) {
    wire::OpenRequest request;
    request.stream = stream;
    request.group = world > 1 ? "default" : name;
    request.client = name;
    request.rank = rank;
    request.world_size = world;
    reply_ = engine.open(index_, request).value();
    auto lease = engine.stream(index_).make_lease().value();
    auto attachment = engine.with(index_, [&](Stream& s) {
      return s.lanes().attach(reply_.lane, std::move(lease), ring::monotonic_ns());
    });
    doorbell_ = engine.make_doorbell().value();
    reader_ = ring::RingReader::open(
                  {ring::UniqueFd(::dup(attachment.data_fd)), ring::UniqueFd(::dup(attachment.control_fd)),
                   std::move(attachment.lease_fd), ring::UniqueFd(::dup(doorbell_.get()))},
                  reply_.lane)
                  .value();
    seek_ = reply_.seek;
  }
  ~RingClient() { leave(); }
  RingClient(const RingClient&) = delete;
  RingClient& operator=(const RingClient&) = delete;

  void leave() {
    if (left_) return;
    left_ = true;
    engine_.with(index_, [&](Stream& s) {
      s.close(reply_.lane, ring::monotonic_ns());
      return 0;
    });
    engine_.unwatch(doorbell_);
  }
  std::optional<ring::Grant> next(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return reader_->next(seek_, timeout, std::chrono::microseconds(5), nullptr);
  }
  void seek(const Cursor& cursor) {
    seek_ = engine_.with(index_, [&](Stream& s) { return s.seek(reply_.lane, cursor); }).seek;
  }
  [[nodiscard]] ring::RingReader& reader() { return *reader_; }
  [[nodiscard]] const wire::AttachReply& opened() const { return reply_; }
  [[nodiscard]] std::size_t stream() const { return index_; }

 private:
  Engine& engine_;
  std::size_t index_;
  wire::AttachReply reply_;
  ring::UniqueFd doorbell_;
  std::shared_ptr<ring::RingReader> reader_;
  std::uint32_t seek_ = 0;
  bool left_ = false;
};

/// Order-sensitive digest of a client's batches (FNV-1a over 64-bit words: a test's checksum, not a hash for
/// data).
class Digest {
 public:
  void add(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001B3ULL; }
  void add_batch(ring::RingReader& reader, const ring::Grant& grant) {
    add(grant.epoch);
    add(grant.batch);
    const ring::SlotDesc& slot = reader.slot(grant.slot);
    add(slot.valid_rows);
    const ring::RowDesc* rows = reader.rows(grant.slot);
    const std::size_t size = row_bytes(reader.fields()[0]);
    for (std::uint32_t i = 0; i < slot.rows; ++i) {
      add(rows[i].sample_index);
      add(rows[i].flags);
      const std::byte* row = reader.values(grant.slot, 0) + i * size;
      for (std::size_t b = 0; b < size; ++b) add(static_cast<std::uint64_t>(row[b]));
    }
  }
  /// Receives the client's next batches, and calls `meanwhile` while it holds each.
  void add_next(RingClient& client, std::uint64_t batches, const std::function<void()>& meanwhile = {}) {
    for (std::uint64_t i = 0; i < batches; ++i) {
      const auto grant = client.next();
      ASSERT_TRUE(grant) << "no batch " << i;
      add_batch(client.reader(), *grant);
      if (meanwhile) meanwhile();
      client.reader().ack(*grant);
    }
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

}  // namespace headrace::testing
