// Pictures that the server has left to the device become the rows of a batch there: they are copied to memory
// of their own, then the transform kernel writes the batch's field.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "clientlib/gpu/batch_layout.h"
#include "clientlib/gpu/device.h"
#include "clientlib/pixels/picture_rows.h"
#include "headrace/gpu_transform.h"

namespace headrace::gpu {

class PictureFinisher {
 public:
  /// For the fields of StreamInfo::on_device. DeviceTransform::open()'s errors, and kNotEnoughMemory.
  static Result<PictureFinisher> open(const StreamInfo& info, std::shared_ptr<Device> device);
  PictureFinisher(PictureFinisher&&) noexcept = default;
  PictureFinisher& operator=(PictureFinisher&&) = delete;
  ~PictureFinisher();  ///< waits for what was queued

  /// Notes what a batch's rows are, and adds the copies of their pictures. The batch before it was launched:
  /// the copies are queued behind that. kInternal: rows that lie outside of their field.
  Result<void> take(const BatchView& batch, std::vector<Transfer>& out);
  /// Queues, behind the copies, the work that writes the fields of a batch at `base`. kInvalidArgument names
  /// the row and what is wrong with its steps.
  Result<void> launch(std::byte* base, const BatchLayout& layout);

 private:
  /// One field of batches.
  struct Field {
    std::size_t at;  // in the stream's fields
    std::string name;
    pixels::PictureRows ring;  // how it lies there
    std::int32_t channels;
    std::size_t output_bytes;  // of a row
    DeviceTransform transform;
    std::byte* pictures;  // on the device: the ring's field, but for its table
    std::vector<PictureAt> places;
    std::vector<pixels::RowSteps> steps;

    [[nodiscard]] std::uint64_t table_bytes() const { return ring.finished(0); }
    [[nodiscard]] std::uint64_t picture_bytes() const { return ring.bytes() - table_bytes(); }
    Result<void> take(const FieldView& view, std::vector<Transfer>& out);
  };

  explicit PictureFinisher(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;  // null: moved from
  std::vector<Field> fields_;
};

}  // namespace headrace::gpu
