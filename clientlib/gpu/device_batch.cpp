#include "clientlib/gpu/device_batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "clientlib/base/contract.h"
#include "clientlib/gpu/copy/block_pool.h"

namespace headrace::gpu {

namespace {

constexpr StreamHandle kPerThread = 2;  // cudaStreamPerThread

}  // namespace

DeviceBatch::State::~State() {
  if (pooled) BlockPool::leave(block, streams, by_host);
}

DeviceBatch::DeviceBatch(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeviceBatch::DeviceBatch(DeviceBatch&&) noexcept = default;
DeviceBatch& DeviceBatch::operator=(DeviceBatch&&) noexcept = default;
DeviceBatch::~DeviceBatch() = default;

std::size_t DeviceFieldView::bytes() const {
  return row_bytes(*spec) * static_cast<std::size_t>(shape[0]);
}

std::uint64_t DeviceBatch::epoch() const {
  return state_->epoch;
}
std::uint64_t DeviceBatch::batch() const {
  return state_->batch;
}
const std::vector<RowInfo>& DeviceBatch::rows() const {
  if (state_->make_rows) state_->rows = std::exchange(state_->make_rows, nullptr)();
  return state_->rows;
}
const std::vector<FieldSpec>& DeviceBatch::fields() const {
  return *state_->layout->specs;
}

DeviceFieldView DeviceBatch::field(std::size_t at) const {
  require(at < fields().size(), "DeviceBatch::field: the index is not below fields().size()");
  const FieldSpec& spec = fields()[at];
  const BatchLayout::Field& place = state_->layout->fields[at];
  DeviceFieldView view{&spec, state_->block.data + place.values, {state_->counts[at]}, nullptr};
  view.shape.insert(view.shape.end(), spec.shape.begin(), spec.shape.end());
  if (spec.kind == FieldKind::kRagged) view.offsets = state_->block.data + place.offsets;
  return view;
}

Result<DeviceFieldView> DeviceBatch::field(std::string_view name) const {
  std::vector<std::string_view> names;
  for (std::size_t f = 0; f < fields().size(); ++f) {
    if (fields()[f].name == name) return field(f);
    names.push_back(fields()[f].name);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the batch has no field '{}': expected one of {}", name, fmt::join(names, ", ")));
}

Result<void> DeviceBatch::wait_on(StreamHandle stream) {
  if (state_->pooled && stream == kPerThread)
    return fail(
        ErrorCode::kInvalidArgument,
        "cannot wait on cudaStreamPerThread: the batch may be freed by another thread, where this handle "
        "means a different stream; pass a stream that you created");
  if (state_->pooled) state_->streams.insert(stream);
  return state_->device->hold_stream(stream, state_->copied->state().mark);
}

Result<void> DeviceBatch::wait() const {
  state_->by_host = true;
  return state_->copied->wait();
}

const DeviceBlock& DeviceBatch::block() const {
  return state_->block;
}

}  // namespace headrace::gpu
