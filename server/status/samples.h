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
  /// "images"}]} of `count` samples, at most kMost and one epoch, from the foremost client's position on.
  /// "images" are the fields that row() and original() show. kNoSuchStream; kInvalidArgument: a stream that
  /// is fed from outside.
  Result<nlohmann::json> next(const std::string& stream, std::uint64_t count);
  /// An image field as trainers receive it, `normalize` undone.
  Result<ImageFile> row(const SamplePosition& at, const std::string& field);
  /// The image that the field is made from, before all transforms.
  Result<ImageFile> original(const SamplePosition& at, const std::string& field);

 private:
  class Turn;  ///< this thread's turn to make samples
  /// Makes a file of the image field with this number in plans().
  using Draw = Result<ImageFile> (*)(const exec::SampleMaker& maker, std::size_t field,
                                     const exec::ShownRow& shown);
  Result<const exec::Stream*> find(const std::string& stream) const;
  /// REQUIRES: this thread's Turn.
  static Result<exec::ShownRow> show(const exec::SampleMaker& maker, const SamplePosition& at);
  Result<ImageFile> show_image(const SamplePosition& at, const std::string& field, Draw draw);

  const exec::Engine& engine_;
  std::mutex mutex_;
  std::atomic<int> waiting_{0};
};

}  // namespace headrace::server::status
