// The server's and clients' halves of a ring in one process; payloads verify themselves.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "clientlib/ring/ring_reader.h"
#include "clientlib/ring/ring_writer.h"

namespace headrace::ring::testing {

using namespace std::chrono_literals;

inline RingWriter::Options small_ring(std::uint32_t slots, std::uint32_t lanes) {
  return {.name = "test",
          .fields = {{.name = "image", .dtype = DType::kUInt8, .shape = {3, 8, 8}},
                     {.name = "label", .dtype = DType::kInt64},
                     {.name = "boxes",
                      .dtype = DType::kFloat32,
                      .kind = FieldKind::kRagged,
                      .shape = {4},
                      .ragged_capacity = 32}},
          .rows = 4,
          .slots = slots,
          .lanes = lanes};
}

template <class T>
T value_or_die(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().to_string();
    std::abort();
  }
  return std::move(*result);
}

inline std::unique_ptr<RingWriter> make_ring(std::uint32_t slots, std::uint32_t lanes) {
  return value_or_die(RingWriter::create(small_ring(slots, lanes)));
}

/// The descriptors that a client would receive over its socket.
inline RingReader::Descriptors descriptors_for(RingWriter& ring, std::uint32_t lane, int doorbell = -1) {
  auto sent = ring.attach(lane, value_or_die(ring.make_lease()));
  return {.data = UniqueFd(::dup(sent.data_fd)),
          .control = UniqueFd(::dup(sent.control_fd)),
          .lease = std::move(sent.lease_fd),
          .doorbell = UniqueFd(doorbell < 0 ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : ::dup(doorbell))};
}

inline std::shared_ptr<RingReader> attach(RingWriter& ring, std::uint32_t lane, int doorbell = -1) {
  return value_or_die(RingReader::open(descriptors_for(ring, lane, doorbell), lane));
}

/// The 8 bytes at word i of the image field: a function of only (epoch, batch, generation) and i.
inline std::uint64_t expected_word(std::uint64_t epoch, std::uint64_t batch, std::uint64_t generation,
                                   std::size_t i) {
  std::uint64_t x = epoch * 0x9E3779B97F4A7C15ULL ^ batch * 0xC2B2AE3D27D4EB4FULL ^ generation << 20 ^ i;
  x = (x ^ x >> 31) * 0xD6E8FEB86659FD93ULL;
  return x ^ x >> 32;
}

inline constexpr std::size_t kImageWords = 4 * 3 * 8 * 8 / 8;

inline void fill_and_publish(RingWriter& ring, std::uint32_t slot, std::uint64_t epoch, std::uint64_t batch) {
  LoanedSlot loaned = ring.loan(slot);
  auto* words = reinterpret_cast<std::uint64_t*>(loaned.values(0));
  for (std::size_t i = 0; i < kImageWords; ++i)
    words[i] = expected_word(epoch, batch, loaned.generation(), i);
  auto* labels = reinterpret_cast<std::int64_t*>(loaned.values(1));
  for (std::uint32_t row = 0; row < 4; ++row) {
    labels[row] = static_cast<std::int64_t>(batch * 4 + row);
    loaned.rows()[row] = {.sample_index = batch * 4 + row, .flags = kRowValid, .reserved = 0};
  }
  auto* boxes = reinterpret_cast<float*>(loaned.values(2));
  for (std::int64_t row = 0; row <= 4; ++row) loaned.offsets(2)[row] = row * 2;
  for (std::size_t i = 0; i < 8 * 4; ++i) boxes[i] = static_cast<float>(batch % 1000 + i);
  ring.publish(std::move(loaned),
               {.epoch = epoch, .batch = batch, .position = batch * 4, .rows = 4, .valid_rows = 4});
}

/// Wrong words in a leased batch; 0 unless the slot was changed while leased.
inline std::size_t wrong_words(const RingReader& ring, const Grant& grant) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(ring.values(grant.slot, 0));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kImageWords; ++i)
    wrong += words[i] != expected_word(grant.epoch, grant.batch, grant.generation, i) ? 1 : 0;
  const auto* labels = reinterpret_cast<const std::int64_t*>(ring.values(grant.slot, 1));
  for (std::uint32_t row = 0; row < 4; ++row)
    wrong += labels[row] != static_cast<std::int64_t>(grant.batch * 4 + row) ? 1 : 0;
  return wrong;
}

}  // namespace headrace::ring::testing
