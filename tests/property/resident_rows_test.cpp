// The kernel over datasets in GPU memory, run by the CPU backend, against the server's own path: random
// chains, datasets and batches, every byte.
#include <gtest/gtest.h>

#include <cstring>

#include "clientlib/gpu/host/host_rows.h"
#include "clientlib/gpu/rows/plan.h"
#include "tests/resident_chains.h"

namespace headrace::server::transform::testing {
namespace {

/// A batch of `rows` from position `first` on, as the server makes it.
std::vector<std::byte> served(const ResidentSample& set, std::uint64_t epoch, std::uint64_t first,
                              std::uint64_t rows) {
  const auto plan = or_throw(Plan::compile(set.config));
  const sampler::Permutation order(set.info.samples, set.info.residence->seed, epoch);
  std::vector<std::byte> image(rows * plan.row_bytes());
  std::vector<std::int64_t> labels;
  Scratch scratch;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const std::uint64_t position = (first + i) % set.info.samples;
    const std::uint64_t sample = set.info.shuffle ? order(position) : position;
    const auto report =
        plan.render({set.pictures[sample], set.shape}, {set.info.residence->seed, epoch, position}, scratch,
                    image.data() + i * plan.row_bytes());
    EXPECT_EQ(report.bad, BadReason::kNone) << report.detail;
    labels.push_back(static_cast<std::int64_t>(sample) * 7);
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(labels.data());
  image.insert(image.end(), bytes, bytes + labels.size() * sizeof(std::int64_t));
  return image;
}

/// The same out of a launch's memory, whose batches are `layout`'s.
std::vector<std::byte> made(const ResidentSample& set, const gpu::BatchLayout& layout, const std::byte* batch,
                            std::uint64_t rows) {
  std::vector<std::byte> out;
  for (std::size_t f = 0; f < set.info.fields.size(); ++f) {
    const std::byte* begin = batch + layout.fields[f].values;
    out.insert(out.end(), begin, begin + rows * row_bytes(set.info.fields[f]));
  }
  return out;
}

std::string difference(const std::vector<std::byte>& got, const std::vector<std::byte>& wanted) {
  if (got.size() != wanted.size()) return "sizes differ";
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != wanted[i]) return "byte " + std::to_string(i) + " of " + std::to_string(got.size());
  return {};
}

void expect_same(ResidentMaker& maker, const ResidentSample& set) {
  const auto layout = or_throw(gpu::BatchLayout::plan(set.info.fields, set.info.batch_size));
  gpu::SetPlan plan = or_throw(gpu::plan_set(set.info, layout));
  const std::vector<std::byte> memory = set.upload(plan);
  plan.place(const_cast<std::byte*>(memory.data()));
  for (int launch = 0; launch < 2; ++launch) {
    gpu::RowJob job = plan.job;
    const std::int32_t batches = maker.draw_launch(set, layout, job);
    const std::size_t guard = 256;
    const std::size_t bytes = static_cast<std::size_t>(batches) * layout.bytes;
    std::vector<std::byte> out(guard + bytes + guard, std::byte{0xA5});
    // Aligned as allocators align blocks.
    auto* const begin = out.data() + guard - reinterpret_cast<std::uintptr_t>(out.data()) % guard;
    job.out = reinterpret_cast<std::uint8_t*>(begin);
    gpu::run_on_host(job);
    const auto rows = static_cast<std::uint64_t>(job.batch_rows);
    for (std::uint64_t batch = 0; batch < static_cast<std::uint64_t>(batches); ++batch) {
      const std::uint64_t first = job.first + batch * job.batch_positions;
      ASSERT_EQ(difference(made(set, layout, begin + batch * layout.bytes, rows),
                           served(set, job.epoch, first, rows)),
                "")
          << "epoch " << job.epoch << ", batch " << batch << ", first " << first << ", rows " << rows
          << ", moves " << job.move_count << ", " << job.out_width << " x " << job.out_height << " of "
          << job.width << " x " << job.height << " x " << job.channels << ", made " << job.element_bytes;
    }
    for (const std::byte* at = out.data(); at < out.data() + out.size(); ++at)
      if (at < begin || at >= begin + bytes) {
        ASSERT_EQ(*at, std::byte{0xA5}) << at - begin;
      }
  }
}

TEST(ResidentRows, MakesTheServersRowsOfRandomChainsAndSets) {
  ResidentMaker maker(23);
  for (int round = 0; round < 3000; ++round) {
    const ResidentSample set = maker.set();
    ASSERT_NO_FATAL_FAILURE(expect_same(maker, set)) << "round " << round;
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(ResidentRows, MovesRowsThatHaveNoPicture) {
  ResidentMaker maker(3);
  for (const std::int64_t width : {1, 2, 3, 4, 5, 8, 16, 33, 4000}) {
    StreamInfo info{.name = "train", .samples = 37, .batch_size = 12};
    info.fields = {{"x", DType::kFloat32, FieldKind::kDense, {width}},
                   {"flag", DType::kBool, FieldKind::kDense, {}},
                   {"y", DType::kInt16, FieldKind::kDense, {width, 3}}};
    info.residence = Residence{.upload = "train.resident", .seed = 9};
    const auto layout = or_throw(gpu::BatchLayout::plan(info.fields, info.batch_size));
    gpu::SetPlan plan = or_throw(gpu::plan_set(info, layout));
    std::vector<std::byte> memory(plan.bytes), out(layout.bytes);
    for (auto& byte : memory) byte = static_cast<std::byte>(maker.random()());
    plan.place(memory.data());
    gpu::RowJob job = plan.job;
    job.order = draws::epoch_order(job.samples, job.seed, job.epoch = 4);
    job.rows = 12;
    job.first = 30;
    job.blocks_at_once = 64;
    job.parts = gpu::row_parts(job);
    job.out = reinterpret_cast<std::uint8_t*>(out.data());
    gpu::run_on_host(job);
    for (std::size_t row = 0; row < 12; ++row) {
      const std::uint64_t sample = draws::permuted(job.order, (30 + row) % 37);
      for (std::size_t f = 0; f < info.fields.size(); ++f) {
        const std::size_t bytes = row_bytes(info.fields[f]);
        ASSERT_EQ(std::memcmp(out.data() + layout.fields[f].values + row * bytes,
                              memory.data() + plan.fields[f].offset + sample * bytes, bytes),
                  0)
            << "row " << row << ", field " << f << ", width " << width;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::server::transform::testing
