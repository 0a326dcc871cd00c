// Shows samples of the batch that a stream's foremost client reads next: as trainers receive them, and as the
// dataset has them.
//
// Thread safety: any thread. One sample is made at a time; kTimeout if several requests wait already.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "headrace/error.h"
#include "server/exec/engine.h"

namespace headrace::server::status {

/// An image file, by its content.
struct ImageFile {
  std::string type;  ///< "image/png" or "image/jpeg"
  std::string bytes;
};

class Samples {
 public:
  static constexpr std::uint64_t kMost = 32;

  /// `engine` must outlive it.
  explicit Samples(const exec::Engine& engine) : engine_(engine) {}

  struct SamplePosition {
    std::string stream;
    std::uint64_t epoch = 0, position = 0;
  };
  /// {"samples": [{"epoch", "position", "name", "sample_index", "label", "class", "replaced", "parameters",
  /// "images"}]} of `count` samples, at most kMost, from the foremost client's position on. "images" are the
  /// fields that row() and original() show. kNoSuchStream; kInvalidArgument: a stream that is fed from
  /// outside.
  Result<nlohmann::json> next(const std::string& stream, std::uint64_t count);
  /// An image field as trainers receive it, `normalize` undone.
  Result<ImageFile> row(const SamplePosition& place, const std::string& field);
  /// The image that the field is made from, before all transforms.
  Result<ImageFile> original(const SamplePosition& place, const std::string& field);

 private:
  struct Shown;  ///< a row that was made
  class Turn;    ///< this thread's turn to make samples
  Result<const exec::Stream*> find(const std::string& stream) const;
  Result<Shown> show(const SamplePosition& at) const;
  /// show(), and the number of an image field in plans().
  Result<Shown> show(const SamplePosition& at, const std::string& field) const;

  const exec::Engine& engine_;
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

}  // namespace headrace::server::status
