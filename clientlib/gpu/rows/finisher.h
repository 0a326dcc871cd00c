// Computes the image fields of batches on the device (`device: gpu`): source images and their RowSteps are
// copied to separate device memory, from which the kernel computes the batch's rows.
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

/// A field of StreamInfo::on_device, and how the kernel computes it.
struct FinishedField {
  std::size_t at;  ///< index in the stream's fields
  std::string name;
  RowJob job;  ///< its pointers are null until a RowFinisher sets them
};

/// Plans the fields of StreamInfo::on_device. Error: kBadMessage for a field that the kernel cannot compute.
Result<std::vector<FinishedField>> plan_fields(const StreamInfo& info);

class RowFinisher {
 public:
  /// REQUIRES: `fields` come from plan_fields(), and prepare_rows() of the device has succeeded.
  /// For batches of up to `rows` rows. Error: kNotEnoughMemory.
  static Result<RowFinisher> open(std::vector<FinishedField> fields, std::uint32_t rows,
                                  std::shared_ptr<Device> device);
  RowFinisher(RowFinisher&&) noexcept = default;
  RowFinisher& operator=(RowFinisher&&) = delete;
  ~RowFinisher();  ///< waits for queued work

  /// Adds the copies of a batch's source images to `out`. Call after launch() for the previous batch, whose
  /// kernel must read its images before these copies overwrite them.
  void add_transfers(const BatchView& batch, std::vector<Transfer>& out);
  /// Queues, after the copies, the kernels that compute the fields of a batch of `rows` rows at `base`.
  Result<void> launch(std::byte* base, std::uint32_t rows, const BatchLayout& layout);

 private:
  explicit RowFinisher(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;  ///< null: moved from
  std::vector<FinishedField> fields_;
};

}  // namespace headrace::gpu
