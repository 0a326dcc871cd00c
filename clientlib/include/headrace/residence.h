// A stream whose set lives on the device: its rows are made there, of pictures that were uploaded once. The
// device draws what is random, by the same numbers as the server. Part of StreamInfo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/device_image.h"

namespace headrace {

struct Residence {
  std::string upload;      ///< the stream that gives the set once, in its own order, as it is to be resident
  std::string plan;        ///< that stream's Fingerprint::plan: what is done to the set before
  std::uint64_t seed = 0;  ///< of order and draws
  std::optional<DeviceImage> image;  ///< none: rows are only moved
};

}  // namespace headrace
