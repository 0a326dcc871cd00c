// Part of StreamInfo: how a device computes the batches of a stream with `residence: gpu`, whose dataset is
// in GPU memory. The dataset is uploaded once. The device makes the same random draws as the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/device_image.h"

namespace headrace {

struct Residence {
  std::string upload;      ///< the upload stream: it delivers the dataset once, in the dataset's own order
  std::string plan;        ///< the upload stream's Fingerprint::plan: the transforms before the upload
  std::uint64_t seed = 0;  ///< of the order and the draws
  std::optional<DeviceImage> image;  ///< none: rows are copied unchanged
};

}  // namespace headrace
