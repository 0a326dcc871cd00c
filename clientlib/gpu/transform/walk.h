// How a block's threads share out the cells of a table, without a division for each.
#pragma once

#include <cstdint>

#include "clientlib/pixels/hd.h"

namespace headrace::gpu {

/// Cells (row, column) of rows x columns, row after row: thread t takes cells t, t + threads, ...
class Walk {
 public:
  HEADRACE_HD Walk(std::int32_t thread, std::int32_t threads, std::int32_t rows, std::int32_t columns)
      : rows_(rows),
        columns_(columns),
        row(thread / columns),
        column(thread - row * columns),
        down_(threads / columns),
        right_(threads - down_ * columns) {}
  [[nodiscard]] HEADRACE_HD bool more() const { return row < rows_; }
  HEADRACE_HD void next() {
    row += down_;
    column += right_;
    if (column >= columns_) {
      column -= columns_;
      ++row;
    }
  }

 private:
  std::int32_t rows_, columns_;

 public:
  std::int32_t row, column;

 private:
  std::int32_t down_, right_;
};

}  // namespace headrace::gpu
