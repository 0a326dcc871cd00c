// Makes the image fields of batches whose pictures came from the server (`device: gpu`): pictures and their
// steps are copied to memory of their own, then the kernel writes the batch's fields.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "clientlib/gpu/device/batch_layout.h"
#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/rows/job.h"

namespace headrace::gpu {

struct FinishedField {
  std::size_t at;  ///< in the stream's fields
  std::string name;
  RowJob job;  ///< without pointers
};

/// Those of StreamInfo::on_device. kBadMessage: they cannot be.
Result<std::vector<FinishedField>> plan_fields(const StreamInfo& info);

class RowFinisher {
 public:
  /// REQUIRES: `fields` are plan_fields()'s, and prepare_rows() of the device has succeeded.
  /// For batches of up to `rows` rows. kNotEnoughMemory.
  static Result<RowFinisher> open(std::vector<FinishedField> fields, std::uint32_t rows,
                                  std::shared_ptr<Device> device);
  RowFinisher(RowFinisher&&) noexcept = default;
  RowFinisher& operator=(RowFinisher&&) = delete;
  ~RowFinisher();  ///< waits for what was queued

  /// Adds the copies of a batch's pictures. The batch before it was launched: the copies are queued behind
  /// that.
  void add_transfers(const BatchView& batch, std::vector<Transfer>& out);
  /// Queues, behind the copies, the work that writes the fields of a batch of `rows` rows at `base`.
  Result<void> launch(std::byte* base, std::uint32_t rows, const BatchLayout& layout);

 private:
  explicit RowFinisher(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;  ///< null: moved from
  std::vector<FinishedField> fields_;
};

}  // namespace headrace::gpu
