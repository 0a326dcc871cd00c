// What a DeviceBatch holds.
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
  bool pooled = false;               ///< `block` is BlockPool's
  std::vector<std::int64_t> counts;  ///< of each field: rows, or values if ragged
  std::uint64_t epoch = 0, batch = 0;
  std::vector<RowInfo> rows;
  std::function<std::vector<RowInfo>()> make_rows;  ///< what `rows` is, if it is asked for; null: it is there
  std::optional<Completion> copied;
  // Of a pooled block: who reads it.
  std::set<StreamHandle> streams;
  mutable bool by_host = false;
};

}  // namespace headrace::gpu
