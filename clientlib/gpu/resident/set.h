// A set in device memory: checked, allocated, and uploaded once through a stream of its own.
//
// Thread safety: one thread at a time. Its engine must outlive it, and it the launches that read it.
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

/// The server's index of each sample of the set; empty: sample i has index i.
using SampleIndices = std::shared_ptr<const std::vector<std::uint64_t>>;

class ResidentSet {
 public:
  /// `stream`: whose set it is. kInvalidArgument: it cannot be resident; kNotEnoughMemory: it does not fit
  /// beside `beside` bytes, with both sizes.
  static Result<ResidentSet> allocate(const Stream& stream, const BatchLayout& layout, CopyEngine& engine,
                                      Device& device, std::size_t beside);

  /// Goes on until all of it is there. Waits at most `timeout` for each batch of the upload; after an error
  /// the next call goes on where it was. `progress` is told the samples that are there.
  Result<void> upload(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt,
                      const std::function<void(std::uint64_t)>& progress);
  [[nodiscard]] bool complete() const { return complete_; }

  /// Of the set; REQUIRES complete().
  [[nodiscard]] const RowJob& job() const { return plan_.job; }
  [[nodiscard]] const SampleIndices& indices() const { return indices_; }
  [[nodiscard]] std::size_t bytes() const { return plan_.bytes; }

 private:
  ResidentSet(const Stream& stream, SetPlan plan, CopyEngine& engine, DeviceBuffer memory);
  Result<void> open(std::chrono::milliseconds timeout, const std::function<bool()>& interrupt);
  [[nodiscard]] Error in_terms_of_the_set(const Error& error) const;
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
  // While it is uploaded.
  std::optional<Stream> from_;
  std::uint64_t uploaded_ = 0;  ///< samples
  std::vector<std::uint64_t> seen_;
  std::deque<Completion> flying_;
};

}  // namespace headrace::gpu
