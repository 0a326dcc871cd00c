#include "server/maker/make_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <semaphore>
#include <system_error>
#include <thread>
#include <utility>

#include "clientlib/base/human.h"
#include "clientlib/base/thrown.h"
#include "clientlib/client/lease.h"
#include "clientlib/ring/private_pages.h"
#include "clientlib/ring/slot_layout.h"

namespace headrace::server::maker {
namespace {

/// Slices for each thread, so that all of them end at about the same time.
constexpr std::uint32_t kSlicesPerThread = 4;

/// The fields of a batch that may be larger than the stream's.
std::vector<FieldSpec> fields_of(const StreamInfo& info, std::uint32_t rows) {
  std::vector<FieldSpec> fields = info.fields;
  const std::uint32_t batches = (rows + info.batch_size - 1) / info.batch_size;
  for (FieldSpec& field : fields) field.ragged_capacity *= std::max(1U, batches);
  return fields;
}

}  // namespace

BatchMaker::BatchMaker(const StreamInfo& info, const exec::SampleMaker& maker, std::uint32_t threads,
                       std::function<bool()> interrupt)
    : info_(info), maker_(maker), threads_(threads), interrupt_(std::move(interrupt)) {}

std::shared_ptr<BatchMaker::Worker> BatchMaker::worker() const {
  std::unique_ptr<Worker> mine;
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      mine = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!mine) mine = std::make_unique<Worker>();
  return {mine.release(), [this](Worker* worker) {
            std::unique_ptr<Worker> back(worker);
            const std::scoped_lock lock(mutex_);
            try {
              idle_.push_back(std::move(back));
            } catch (const std::bad_alloc&) {  // then it is made again
            }
          }};
}

void BatchMaker::work(exec::FillJob& job) const noexcept {
  constexpr std::uint64_t kForever = ~std::uint64_t{0};
  const auto stop = [&job](ErrorCode code, const auto& message) noexcept {
    try {
      job.failure.stop({code, message()});
    } catch (...) {
      job.failure.mark();  // no memory for the reason
    }
  };
  try {
    const auto mine = worker();
    while (job.unclaimed() && !job.failure.failed()) job.work(mine->scratch, mine->counters, kForever);
  } catch (const std::bad_alloc&) {
    stop(ErrorCode::kNotEnoughMemory, [] { return "no memory for buffers: use fewer threads"; });
  } catch (...) {
    stop(ErrorCode::kInternal, [] { return thrown(); });
  }
}

void BatchMaker::complete(exec::FillJob& job) const {
  const std::uint32_t slices = (job.rows.rows + job.lead + job.slice - 1) / job.slice;
  const std::uint32_t threads = std::min(threads_, slices);
  std::counting_semaphore<> ended(0);
  std::vector<std::jthread> helpers;  // destroyed, and so joined, before the semaphore
  // With an interrupt, this thread only waits for it: a row may take long.
  const std::uint32_t wanted = interrupt_ ? threads : threads - 1;
  try {
    while (helpers.size() < wanted)
      helpers.emplace_back([&] {
        work(job);
        ended.release();
      });
  } catch (const std::system_error&) {  // no further thread can be created: fewer do the work
  }
  if (!interrupt_ || helpers.empty()) return work(job);
  for (std::size_t i = 0; i < helpers.size(); ++i)
    while (!ended.try_acquire_for(kBetweenInterrupts))
      if (interrupt_()) job.failure.stop({ErrorCode::kTimeout, "interrupted"});
}

Result<BatchView> BatchMaker::make(const Cursor& batch, const sampler::BatchRows& rows) const try {
  const auto fields = std::make_shared<const std::vector<FieldSpec>>(fields_of(info_, rows.rows));
  const auto layout = ring::SlotLayout::plan(*fields, rows.rows);
  if (!layout) return fail(layout.error());
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(ring::page_size(), layout->slot_stride)), std::free);
  if (!memory)
    return fail(ErrorCode::kNotEnoughMemory,
                fmt::format("no memory for {} rows of stream `{}`: {} are needed; make fewer at a time",
                            rows.rows, info_.name, human_bytes(layout->slot_stride)));
  exec::Failure failure;
  const ring::SlotMemory slot(memory.get(), *layout);
  exec::FillJob job({maker_, failure,
                     exec::rows_per_slice(maker_, std::max(1U, rows.rows / (kSlicesPerThread * threads_)))},
                    slot, {.cursor = batch}, rows, maker_.order(batch.epoch));
  complete(job);
  if (failure.failed()) {
    Error error = failure.reason();
    error.message = fmt::format("stream `{}`: {}", info_.name, error.message);
    return fail(std::move(error));
  }
  return BatchView(BatchView::Lease::on_memory(memory, slot, fields, batch, rows.rows, rows.valid));
} catch (const std::bad_alloc&) {
  return fail(
      ErrorCode::kNotEnoughMemory,
      fmt::format("no memory for {} rows of stream `{}`: make fewer at a time", rows.rows, info_.name));
}

}  // namespace headrace::server::maker
