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

/// kBadMessage: fields of StreamInfo::on_device that cannot be.
Result<void> check_rows(const StreamInfo& info);

class RowFinisher {
 public:
  /// For the fields of StreamInfo::on_device, in batches of up to `rows` rows. check_rows()'s errors;
  /// kEnvironment: the device has no kernels; kNotEnoughMemory.
  static Result<RowFinisher> open(const StreamInfo& info, std::uint32_t rows, std::shared_ptr<Device> device);
  RowFinisher(RowFinisher&&) noexcept = default;
  RowFinisher& operator=(RowFinisher&&) = delete;
  ~RowFinisher();  ///< waits for what was queued

  /// Adds the copies of a batch's pictures. The batch before it was launched: the copies are queued behind
  /// that.
  void add_transfers(const BatchView& batch, std::vector<Transfer>& out);
  /// Queues, behind the copies, the work that writes the fields of a batch of `rows` rows at `base`.
  Result<void> launch(std::byte* base, std::uint32_t rows, const BatchLayout& layout);

 private:
  struct Field {
    std::size_t at;  ///< in the stream's fields
    std::string name;
    RowJob job;
  };

  explicit RowFinisher(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;  ///< null: moved from
  std::vector<Field> fields_;
};

}  // namespace headrace::gpu
