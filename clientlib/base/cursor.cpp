#include "headrace/cursor.h"

namespace headrace {

std::uint64_t position_after(std::uint64_t samples, std::uint64_t origin, std::uint64_t batches,
                             std::uint64_t rows) {
  return batches > (samples - origin) / rows ? samples : origin + batches * rows;  // no product can overflow
}

std::string to_string(const Cursor& cursor) {
  const std::string origin = cursor.origin == 0 ? "" : ", origin " + std::to_string(cursor.origin);
  return "epoch " + std::to_string(cursor.epoch) + origin + ", batch " + std::to_string(cursor.batch);
}

}  // namespace headrace
