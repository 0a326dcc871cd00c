// The state of a DeviceBatch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "clientlib/gpu/copy/completion.h"
#include "clientlib/gpu/device/batch_layout.h"
#include "headrace/device_loader.h"

namespace headrace::gpu {

struct DeviceBatch::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  std::shared_ptr<Device> device;
  std::shared_ptr<const BatchLayout> layout;
  DeviceBlock block;
  bool pooled = false;               ///< `block` comes from a BlockPool
  std::vector<std::int64_t> counts;  ///< for each field: its rows, or its values if it is ragged
  std::uint64_t epoch = 0, batch = 0;
  std::vector<RowInfo> rows;
  std::function<std::vector<RowInfo>()> make_rows;  ///< computes `rows` on first use; null: `rows` is set
  std::optional<Completion> copied;
  // The readers of a pooled block.
  std::set<StreamHandle> streams;
  mutable bool by_host = false;
};

}  // namespace headrace::gpu
