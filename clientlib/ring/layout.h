// Ring layout v2: the bytes in shared memory. This file is the only description of them that server and
// client share.
//
// Three kinds of segments (memfd) per stream:
//   data     slots, page-aligned; in each slot the fields' values and the row descriptors. Only the first
//            allocated_bytes have memory, which grows as clients attach
//   control  ControlHeader | FieldDesc[field_count] | SlotDesc[slot_count] | LaneBlock[lane_count];
//            clients map it read-only
//   lease    one per attached client: LeaseBlock; written by that client. The server checks each value that
//            it reads
//
// Invariants
//  1. A slot's word goes FREE -> FILLING -> READY -> FREE; each FREE -> FILLING step takes a generation never
//     used before.
//  2. A client reads a slot only between a grant that names it and its ack of that grant.
//  3. Only the server's private ledger says which client holds which slot (server/publish/ledger.h). So
//     garbage in a lease segment can cost its writer the session, but does not affect other clients.
//
// Release/acquire pairs, named at both ends in the code:
//   SYNC publish-slot   server stores SlotDesc::word (READY, release) -> client loads it (acquire)
//   SYNC grant          server stores LaneBlock::granted (seq_cst)    -> client loads it (acquire)
//   SYNC ack            client stores LeaseBlock::acked (seq_cst)     -> server loads it (acquire)
//   SYNC commit         client stores LeaseBlock::commits (release)   -> server loads it (acquire)
//   SYNC client-sleeps  client sets LeaseBlock::waiting, then re-reads granted;
//                       server stores granted, then reads waiting
//   SYNC server-sleeps  server sets ControlHeader::server_idle, then re-reads acked;
//                       client stores acked, then reads server_idle
//                       (both sleeps: seq_cst on all four accesses, or a wake is lost)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace headrace::ring {

inline constexpr std::uint32_t kLayoutVersion = 2;
inline constexpr std::uint64_t kControlMagic = 0x31304C5443524448;  // "HDRCTL01" in memory order
inline constexpr std::uint64_t kLeaseMagic = 0x31305345'4C524448;   // "HDRLES01"
inline constexpr std::size_t kMaxDims = 6;
inline constexpr std::size_t kMaxFields = 64;
inline constexpr std::size_t kGrantRing = 64;  ///< entries; max_leases may not exceed it
inline constexpr std::size_t kCacheLine = 64;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The state of a lane, for its client; a bit set.
enum LaneState : std::uint32_t {
  kLaneOpen = 1,      ///< attached
  kLaneFenced = 2,    ///< the client hung past the eviction time: next() fails with LEASE_FENCED
  kLaneDraining = 4,  ///< no further grants: the server is shutting down
  kLaneFailed = 8,    ///< the stream failed; the control socket gives the reason
};

/// When a client rings the doorbell (an eventfd) to wake the server.
enum ServerIdle : std::uint32_t {
  kServerAwake = 0,  ///< never: no worker sleeps
  kServerRests = 1,  ///< after each ack: a worker sleeps, and no awake worker will check for acks soon
  /// Only before the client itself sleeps: a worker sleeps, and the awake ones read the acks if they keep up.
  kServerHalfAwake = 2,
};

struct alignas(kCacheLine) ControlHeader {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t header_bytes;  // sizeof(ControlHeader); a client of another build refuses the ring
  std::uint64_t control_bytes;
  std::uint64_t data_bytes;
  std::uint64_t slot_stride;  // bytes from one slot to the next; a multiple of the page size
  std::uint64_t rows_offset;  // of RowDesc[row_capacity] within a slot
  std::uint64_t instance;     // random; differs for each server start
  std::uint32_t slot_count;
  std::uint32_t field_count;
  std::uint32_t row_capacity;  // of a slot
  std::uint32_t lane_count;
  std::uint64_t fields_offset;  // within control
  std::uint64_t slots_offset;
  std::uint64_t lanes_offset;
  std::atomic<std::uint64_t> allocated_bytes;  // of data; includes every slot that was ever granted
  alignas(kCacheLine) std::atomic<std::uint64_t> heartbeat_ns;  // CLOCK_MONOTONIC, at least twice a second
  alignas(kCacheLine) std::atomic<std::uint32_t> server_idle;   // ServerIdle
};

struct FieldDesc {
  char name[48];       // NUL-terminated
  std::uint8_t dtype;  // headrace::DType
  std::uint8_t kind;   // headrace::FieldKind
  std::uint8_t rank;   // dimensions of one row (dense) or of one value (ragged)
  std::uint8_t reserved[5];
  std::int64_t shape[kMaxDims];
  std::uint64_t values_offset;   // within a slot, 64-byte aligned
  std::uint64_t values_bytes;    // capacity
  std::uint64_t offsets_offset;  // ragged: of int64 offsets[row_capacity + 1] within a slot; dense: 0
};

enum RowFlags : std::uint32_t {
  kRowValid = 1,     // not set: padding, or a wrapped duplicate at the epoch's tail
  kRowReplaced = 2,  // stands in for a bad sample
};

struct RowDesc {
  std::uint64_t sample_index;  // within the source
  std::uint32_t flags;         // RowFlags
  std::uint32_t reserved;
};

enum class SlotState : std::uint8_t { kFree = 0, kFilling = 1, kReady = 2 };

/// Slot word: generation in the upper 62 bits, state in the lower two.
constexpr std::uint64_t slot_word(std::uint64_t generation, SlotState state) {
  return generation << 2 | static_cast<std::uint64_t>(state);
}
constexpr SlotState slot_state(std::uint64_t word) {
  return static_cast<SlotState>(word & 3);
}
constexpr std::uint64_t slot_generation(std::uint64_t word) {
  return word >> 2;
}

/// Plain members are written while FILLING, by the server alone, and read by clients after SYNC grant.
struct alignas(kCacheLine) SlotDesc {
  std::atomic<std::uint64_t> word;
  std::uint64_t epoch;
  std::uint64_t batch;
  std::uint64_t position;    // of row 0 within the epoch's order
  std::uint64_t publish_ns;  // CLOCK_MONOTONIC
  std::uint64_t payload_bytes;
  std::uint32_t rows;  // rows present, valid or not
  std::uint32_t valid_rows;
  std::uint64_t checksum;  // checksum_of() the slot; 0: none (ring.checksums is off, or a server without it)
};

struct Grant {
  std::uint64_t generation;
  std::uint64_t epoch;
  std::uint64_t batch;
  std::uint32_t slot;
  std::uint32_t seek;  // of the lane when granted; a grant from before a seek is acked unread
};

struct alignas(kCacheLine) LaneBlock {
  std::atomic<std::uint32_t> granted;  // grants ever written, mod 2^32; the futex word of this lane's client
  std::atomic<std::uint32_t> state;    // LaneState
  // Differs for each attach; 0: none. A client that finds another value here was detached while it slept, and
  // no longer holds its leases.
  std::atomic<std::uint64_t> attachment;
  alignas(kCacheLine) Grant grants[kGrantRing];  // entry i at [i % kGrantRing]
};

struct Ack {
  std::uint64_t generation;
  std::uint32_t slot;
  std::uint32_t reserved;
};

/// A client's committed cursor: the batch after the last one that its loop has consumed.
struct ConsumedCursor {
  std::atomic<std::uint64_t> epoch, origin, batch;
};

struct alignas(kCacheLine) LeaseBlock {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t reserved;
  alignas(kCacheLine) std::atomic<std::uint64_t> heartbeat_ns;  // CLOCK_MONOTONIC, by the client's own thread
  std::atomic<std::uint64_t> wait_ns;                           // time spent waiting in next(), total
  std::atomic<std::uint64_t> private_copies;  // batches that next() had to copy because views were alive
  std::atomic<std::uint64_t> staged_copies;   // device copies from a ring that is not pinned
  // The number of commits so far. Entry commits % 2 is always complete, even if the client is killed while it
  // writes the other one.
  alignas(kCacheLine) std::atomic<std::uint64_t> commits;
  ConsumedCursor consumed[2];
  alignas(kCacheLine) std::atomic<std::uint32_t> waiting;  // 1: sleeps on LaneBlock::granted
  alignas(kCacheLine) std::atomic<std::uint32_t> acked;    // acks ever written, mod 2^32
  alignas(kCacheLine) Ack acks[kGrantRing];
};

static_assert(sizeof(FieldDesc) == 128 && sizeof(RowDesc) == 16 && sizeof(Grant) == 32 && sizeof(Ack) == 16);
static_assert(sizeof(SlotDesc) == kCacheLine);
static_assert(sizeof(ControlHeader) == 256 && offsetof(ControlHeader, heartbeat_ns) == 128);
static_assert(sizeof(LaneBlock) == kCacheLine + sizeof(Grant) * kGrantRing);
static_assert(sizeof(LeaseBlock) == 5 * kCacheLine + sizeof(Ack) * kGrantRing &&
              offsetof(LeaseBlock, acks) == 320);

}  // namespace headrace::ring
