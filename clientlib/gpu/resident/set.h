// A dataset in GPU memory: checked, allocated, and uploaded once through its own upload stream.
//
// Thread safety: one thread at a time. Lifetime: the engine must outlive the dataset, which must outlive the
// kernels that read it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/resident/plan.h"
#include "headrace/client.h"
#include "headrace/gpu.h"

namespace headrace::gpu {

/// The server's index of each sample in the dataset. Empty: sample i has index i.
using SampleIndices = std::shared_ptr<const std::vector<std::uint64_t>>;

class ResidentSet {
 public:
  /// `stream`: the stream with `residence: gpu`. `beside`: bytes that batches need in addition. Errors:
  /// kInvalidArgument if the dataset cannot be kept in GPU memory; kNotEnoughMemory, with the sizes, if it
  /// does not fit.
  static Result<ResidentSet> allocate(const Stream& stream, const BatchLayout& layout, CopyEngine& engine,
                                      Device& device, std::size_t beside);

  /// Uploads the dataset. Waits at most `timeout` for each batch of the upload; after an error the next call
  /// continues. Calls `progress` with the number of samples uploaded so far.
  Result<void> upload(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt,
                      const std::function<void(std::uint64_t)>& progress);
  [[nodiscard]] bool complete() const { return complete_; }

  /// REQUIRES: complete().
  [[nodiscard]] const RowJob& job() const { return plan_.job; }
  [[nodiscard]] const SampleIndices& indices() const { return indices_; }
  [[nodiscard]] std::size_t bytes() const { return plan_.bytes; }

 private:
  ResidentSet(const Stream& stream, SetPlan plan, CopyEngine& engine, DeviceBuffer memory);
  Result<void> open(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt);
  [[nodiscard]] Error in_terms_of_the_set(const Error& error) const;  ///< without the upload stream's name
  Result<void> take(BatchView batch);
  Result<void> finish(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt);
  /// Waits for the oldest copy.
  Result<void> settle(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt);

  CopyEngine* engine_;
  SetPlan plan_;
  StreamInfo info_;
  std::string address_;
  std::vector<std::uint32_t> allow_uids_;
  OpenOptions opening_;
  DeviceBuffer memory_;
  bool complete_ = false;
  SampleIndices indices_;
  // Only during the upload.
  std::optional<Stream> from_;       ///< the upload stream
  std::uint64_t uploaded_ = 0;       ///< samples
  std::vector<std::uint64_t> seen_;  ///< the server's index of each uploaded sample
  std::deque<Completion> flying_;    ///< copies that may not have finished
};

}  // namespace headrace::gpu
