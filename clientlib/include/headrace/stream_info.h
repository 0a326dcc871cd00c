// A server's description of one of its streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/cursor.h"
#include "headrace/field.h"
#include "headrace/residence.h"

namespace headrace {

enum class Delivery : std::uint8_t {
  kBroadcast,  ///< each client gets every batch
  kShard,      ///< the ranks of a group divide the epoch
};

/// The first batch of a client that has no saved state.
enum class Join : std::uint8_t {
  kDefault,  ///< epoch 0, batch 0
  /// The position of the stream's foremost attached lane, or without one, of the foremost lane of the streams
  /// that share rows.
  kNow,
  kEpochStart,  ///< batch 0 of the epoch that the foremost lane is in
  kCursor,      ///< the cursor of OpenOptions::state
};

/// Two streams with equal fingerprints deliver the same samples. The parts are hexadecimal numbers; an error
/// says which one differs. They do not cover batch size, threads, caches or placement.
struct Fingerprint {
  std::string dataset;
  std::string plan;
  std::string seed;
  std::string algorithm;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

/// The first part that differs, in words for an error: "dataset (was 77aa, now 1f2e)". Empty if all parts are
/// equal.
std::string difference(const Fingerprint& now, const Fingerprint& then);

struct StreamInfo {
  std::string name;
  Delivery delivery = Delivery::kBroadcast;
  std::uint64_t samples = 0;     ///< per epoch
  std::uint32_t batch_size = 0;  ///< per rank
  LastBatch last = LastBatch::kShort;
  bool shuffle = true;
  std::vector<FieldSpec> fields;
  std::vector<std::string> classes;  ///< class names by label
  Fingerprint fingerprint;
  /// Another process makes each batch once, while the stream is served (Python: headrace.share()). A client
  /// begins at the position of the others, and cannot go back or resume.
  bool live = false;
  /// Image fields that the device computes (`device: gpu`), in the order of `fields`; only a DeviceLoader can
  /// open such a stream. In the ring, each of their rows is uint8 pixels and the drawn parameters. A batch on
  /// the device has the fields in `fields`.
  std::vector<DeviceImage> on_device;
  /// `residence: gpu`: a DeviceLoader uploads the dataset once, and computes each batch on the device.
  std::optional<Residence> residence = {};

  /// Rows of the largest batch: fewer than batch_size if an epoch is a single batch that is not padded.
  [[nodiscard]] std::uint32_t most_rows() const {
    const bool whole = live || last == LastBatch::kPad || samples >= batch_size;
    return whole ? batch_size : static_cast<std::uint32_t>(samples);
  }
};

/// The fields as they are in the ring.
std::vector<FieldSpec> ring_fields(const StreamInfo& info);

}  // namespace headrace
