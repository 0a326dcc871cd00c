#include "tests/property/simulation/rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "clientlib/base/contract.h"
#include "server/exec/field_plans.h"

namespace headrace::testing {
namespace {

constexpr std::uint64_t kSeed = 11;

std::vector<std::string> classes() {
  return {"a", "b", "c", "d", "e", "f", "g"};
}

std::shared_ptr<const Numbers> numbers(std::uint64_t samples, std::int64_t width) {
  return std::make_shared<Numbers>(
      NumbersOptions{.count = samples, .classes = classes(), .fields = {"x", "y"}, .width = width});
}

std::byte byte_of(std::uint64_t sample, std::size_t field) {
  return static_cast<std::byte>(sample + 100 * field);
}

bool all_are(const std::byte* bytes, std::size_t count, std::byte value) {
  return std::all_of(bytes, bytes + count, [&](std::byte byte) { return byte == value; });
}

}  // namespace

SimulatedSource::SimulatedSource(std::uint64_t samples, std::int64_t width, std::uint64_t bad_every)
    : ForwardingSource(numbers(samples, width)), bad_every_(bad_every) {}

Result<void> SimulatedSource::read_fields(std::uint64_t index, server::source::FieldSet wanted,
                                          server::source::Sample& out) const {
  if (meanwhile && !undisturbed) meanwhile();
  if (fails && !undisturbed) return fail(ErrorCode::kTransientIo, "a simulated I/O error");
  if (is_bad(index)) return fail(ErrorCode::kBadSample, "a simulated bad sample");
  return real().read_fields(index, wanted, out);
}

SimulatedRows::SimulatedRows(std::uint64_t samples, std::int64_t width, std::uint64_t bad_every)
    : samples_(samples),
      width_(static_cast<std::size_t>(width)),
      source_(std::make_shared<SimulatedSource>(samples, width, bad_every)),
      reference_(make_maker()),
      row_(*reference_) {}

std::shared_ptr<server::exec::SampleMaker> SimulatedRows::make_maker() const {
  return std::make_shared<server::exec::SampleMaker>(
      source_, server::exec::plan_fields(*source_, {}, samples_).value(),
      server::exec::SampleOptions{.stream = "s", .seed = kSeed, .max_bad = 1});
}

server::exec::SharedFields SimulatedRows::shared_fields() const {
  server::exec::SharedFields shared;
  for (std::size_t field = 0; field < 2; ++field) {
    server::exec::SharedField& it = shared.fields.emplace_back();
    it.offset = field * width_;
    it.bytes = width_;
  }
  shared.row_bytes = 2 * width_;
  return shared;
}

const SimulatedRows::Expected& SimulatedRows::at(std::uint64_t epoch, std::uint64_t position) {
  const auto [found, is_new] = expected_.try_emplace({epoch, position});
  if (!is_new) return found->second;
  const std::uint64_t own = reference_->order(epoch)(position);
  if (!source_->is_bad(own)) {
    found->second = {own, false, own};
    return found->second;
  }
  const bool before = std::exchange(source_->undisturbed, true);
  const auto row = reference_->show(epoch, position, row_.fields, scratch_);
  source_->undisturbed = before;
  require(row.has_value() && row->replaced && !source_->is_bad(row->sample_index),
          "a bad sample is replaced");
  found->second = {row->sample_index, true, own};
  return found->second;
}

void SimulatedRows::write(std::uint64_t sample, std::byte* x, std::byte* y, std::byte* label) const {
  std::memset(x, std::to_integer<int>(byte_of(sample, 0)), width_);
  std::memset(y, std::to_integer<int>(byte_of(sample, 1)), width_);
  const auto value = static_cast<std::int64_t>(sample % classes().size());
  std::memcpy(label, &value, sizeof value);
}

bool SimulatedRows::equals(std::uint64_t sample, const std::byte* x, const std::byte* y,
                           const std::byte* label) const {
  std::int64_t value = 0;
  std::memcpy(&value, label, sizeof value);
  return all_are(x, width_, byte_of(sample, 0)) && all_are(y, width_, byte_of(sample, 1)) &&
         value == static_cast<std::int64_t>(sample % 7);
}

}  // namespace headrace::testing
