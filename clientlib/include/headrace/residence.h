// A stream whose set lives on the device: how its rows are made there, of pictures that were uploaded once.
// What is drawn is drawn on the device, from the same numbers as the server's. Part of StreamInfo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/field.h"
#include "headrace/resident_step.h"

namespace headrace {

struct Residence {
  std::string upload;      ///< the stream that gives the set once, in its own order, as it is to be resident
  std::string plan;        ///< that stream's Fingerprint::plan: what is done to the set before
  std::uint64_t seed = 0;  ///< of order and draws
  std::string image;       ///< the field that is a picture; empty: there is none, rows are only gathered
  std::int32_t height = 0, width = 0, channels = 0;  ///< of the resident pictures
  DType stored = DType::kUInt8;  ///< uint8; or float16: values are final, the chain's steps only move them
  pixels::PixelLayout layout = pixels::PixelLayout::kNchw;  ///< of resident pictures and of batches
  std::vector<double> mean, std;    ///< Normalize's, one per channel; both empty: x / 255
  std::vector<ResidentStep> steps;  ///< at most kMaxResidentSteps
};

}  // namespace headrace
