#include "headrace/cursor.h"

namespace headrace {

std::string to_string(const Cursor& cursor) {
  return "epoch " + std::to_string(cursor.epoch) + ", origin " + std::to_string(cursor.origin) + ", batch " +
         std::to_string(cursor.batch);
}

}  // namespace headrace
