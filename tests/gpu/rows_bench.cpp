// Measures the kernel alone, on a busy stream, and its fraction of the GPU's memory bandwidth:
//   rows_bench [--rounds N] [--launches N]
// Prints one line of JSON per figure, after "[figure] ". A round is 20 launches between two events, all
// queued before the first one starts (under a profiler use --rounds 1 --launches 1). Each launch reads other
// images than the launches before it, whose images the L2 cache may hold. `share_of_copy` is the bandwidth
// relative to a device-to-device copy that reads and writes as many bytes. `share_of_peak` is relative to the
// memory's clock rate and bus width.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/resident/plan.h"
#include "clientlib/gpu/rows/plan.h"

namespace headrace::gpu {
namespace {

constexpr int kMostLaunches = 200;  // more would fill the stream's queue, and a launch would block
int launches = 20;
/// Bytes that launches read before they read the same ones again: more than the L2 cache holds.
constexpr std::size_t kReadInTurn = std::size_t{256} << 20;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

struct Memory {
  explicit Memory(std::size_t size) { check(cudaMalloc(&data, size)), check(cudaMemset(data, 0x5A, size)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { (void)cudaFree(data); }
  void* data = nullptr;
};

/// Blocks a stream until open(), so that the work queued behind it runs without gaps.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) : stream_(stream) {
    check(cudaLaunchHostFunc(
        stream, [](void* gate) { static_cast<Gate*>(gate)->wait(); }, this));
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    (void)cudaStreamSynchronize(stream_);  // wait() must return before the members end
  }
  void open() {
    if (!std::exchange(is_open_, true)) open_.set_value();
  }

 private:
  // Limits the wait: with CUDA_LAUNCH_BLOCKING or a profiler, the next launch blocks before open() is called.
  void wait() { (void)opened_.wait_for(std::chrono::seconds(2)); }
  cudaStream_t stream_;
  bool is_open_ = false;
  std::promise<void> open_;
  std::future<void> opened_ = open_.get_future();
};

/// Milliseconds per launch, from `launches` launches in a row; the best round.
template <class Queue>
double best_of(int rounds, cudaStream_t stream, Queue queue) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  double best = 1e9;
  queue();  // loads the kernel now, because loading it could wait for a blocked stream
  check(cudaStreamSynchronize(stream));
  for (int round = 0; round < rounds; ++round) {
    std::optional<Gate> gate;
    if (launches > 1) gate.emplace(stream);
    queue();  // keeps the stream busy when the clock starts
    check(cudaEventRecord(begin, stream));
    for (int i = 0; i < launches; ++i) queue();
    check(cudaEventRecord(end, stream));
    if (gate) gate->open();
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, static_cast<double>(ms) / launches);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return best;
}

/// The peak bandwidth in bytes per second: two transfers per clock.
double peak() {
  int khz = 0, bits = 0;
  check(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, 0));
  check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, 0));
  return 2e3 * khz * bits / 8;
}

/// `advance` changes a launch's job into that of the next launch.
template <class Advance>
void report(Device& device, const char* what, RowJob job, double bytes, int rounds, Advance advance) {
  auto* const stream = reinterpret_cast<cudaStream_t>(device.copy_stream());
  const double ms = best_of(rounds, stream, [&] {
    or_throw(device.launch(job));
    advance(job);
  });
  const auto half = static_cast<std::size_t>(bytes / 2);
  const std::size_t step = (half + 255) / 256 * 256, sources = kReadInTurn / step + 1;
  const Memory from(sources * step), to(half);
  std::size_t copies = 0;
  const double copy = best_of(rounds, stream, [&] {
    const auto* const source = static_cast<const std::byte*>(from.data) + copies++ % sources * step;
    check(cudaMemcpyAsync(to.data, source, half, cudaMemcpyDeviceToDevice, stream));
  });
  std::printf("[figure] %s\n", nlohmann::json{{"figure", "kernel"},
                                              {"of", what},
                                              {"rows", job.rows},
                                              {"us", 1e3 * ms},
                                              {"gb_per_s", bytes / ms / 1e6},
                                              {"copy_us", 1e3 * copy},
                                              {"share_of_copy", copy / ms},
                                              {"share_of_peak", 1e3 * bytes / ms / peak()}}
                                   .dump()
                                   .c_str());
}

/// 256 rows of 224 x 224 pixels, in the format in which they come from the server.
void imagenet(Device& device, const char* what, DType dtype, bool jitter, int rounds) {
  constexpr std::uint32_t kRows = 256;
  DeviceImage image{.height = 224,
                    .width = 224,
                    .channels = 3,
                    .color_steps = jitter ? 4U : 0U,
                    .contrasts = jitter ? 1U : 0U};
  image.moves = {{.kind = Move::Kind::kHorizontalFlip, .height = 224, .width = 224}};
  if (dtype != DType::kUInt8) image.mean = {0.485, 0.456, 0.406}, image.std = {0.229, 0.224, 0.225};
  const FieldSpec field{"image", dtype, FieldKind::kDense, {3, 224, 224}};
  RowJob job;
  if (const auto wrong = plan_rows(image, field, Drawn::kByServer, job); !wrong.empty())
    throw std::runtime_error(wrong);
  std::vector<std::byte> pictures(kRows * image.row_bytes());
  for (std::size_t i = 0; i < pictures.size(); ++i)
    pictures[i] = static_cast<std::byte>(i * 2'654'435'761U >> 16);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    RowSteps steps;
    steps.turns[0] = static_cast<std::uint8_t>(row % 2);
    using Kind = PixelStep::Kind;
    if (jitter)
      for (const Kind kind : {Kind::kBrightness, Kind::kContrast, Kind::kSaturation, Kind::kHue})
        steps.steps[steps.step_count++] = {.kind = kind, .shift = 20, .factor = 1.2F};
    std::memcpy(pictures.data() + row * image.row_bytes() + image.steps_offset(), &steps, sizeof steps);
  }
  const std::size_t sets = kReadInTurn / pictures.size() + 1;
  const Memory there(sets * pictures.size()), out(kRows * row_bytes(field));
  auto* const first = static_cast<std::uint8_t*>(there.data);
  for (std::size_t set = 0; set < sets; ++set)
    check(
        cudaMemcpy(first + set * pictures.size(), pictures.data(), pictures.size(), cudaMemcpyHostToDevice));
  job.pictures = first;
  job.out = static_cast<std::uint8_t*>(out.data);
  job.rows = kRows;
  job.blocks_at_once = device.blocks_at_once(job);
  job.parts = row_parts(job);
  std::size_t set = 0;
  report(device, what, job, static_cast<double>(pictures.size() + kRows * row_bytes(field)), rounds,
         [&](RowJob& next) { next.pictures = first + ++set % sets * pictures.size(); });
}

void resident(Device& device, const char* what, std::uint64_t samples, std::uint32_t rows, std::int32_t side,
              std::int32_t channels, DType dtype, bool augmented, int rounds) {
  StreamInfo info{.name = what, .samples = samples, .batch_size = rows};
  info.fields = {{"image", dtype, FieldKind::kDense, {channels, side, side}},
                 {"label", DType::kInt64, FieldKind::kDense, {}}};
  DeviceImage image{.height = side, .width = side, .channels = channels};
  image.mean.assign(static_cast<std::size_t>(channels), 0.5);
  image.std.assign(static_cast<std::size_t>(channels), 0.25);
  if (augmented)
    image.moves = {
        {.height = side, .width = side, .top = -4, .left = -4, .rows = 9, .columns = 9},
        {.kind = Move::Kind::kHorizontalFlip, .stage = 1, .height = side, .width = side, .p = 0.5}};
  info.residence = Residence{.upload = "u", .seed = 1, .image = image};
  const auto layout = or_throw(BatchLayout::plan(info.fields, info.batch_size));
  SetPlan plan = or_throw(plan_set(info, layout));
  const Memory set(plan.bytes), out(layout.bytes);
  plan.place(static_cast<std::byte*>(set.data));
  plan.job.out = static_cast<std::uint8_t*>(out.data);
  plan.job.rows = static_cast<std::int32_t>(rows);
  plan.job.blocks_at_once = device.blocks_at_once(plan.job);
  plan.job.parts = row_parts(plan.job);
  plan.job.order = draws::epoch_order(samples, 1, 0);
  const double bytes = rows * static_cast<double>(row_bytes(info.fields[0]) + image.picture_bytes());
  report(device, what, plan.job, bytes, rounds,
         [&](RowJob& next) { next.first = (next.first + rows) % samples; });
}

int run(int rounds) try {
  const auto device = or_throw(open_device("cuda:0"));
  or_throw(device->prepare_rows());
  imagenet(*device, "224 x 224, flip, uint8", DType::kUInt8, false, rounds);
  imagenet(*device, "224 x 224, flip, normalize, float16", DType::kFloat16, false, rounds);
  imagenet(*device, "224 x 224, flip, normalize, float32", DType::kFloat32, false, rounds);
  imagenet(*device, "224 x 224, flip, color jitter, normalize, float16", DType::kFloat16, true, rounds);
  imagenet(*device, "224 x 224, flip, color jitter, normalize, float32", DType::kFloat32, true, rounds);
  resident(*device, "MNIST in GPU memory, float32", 60'000, 300, 28, 1, DType::kFloat32, false, rounds);
  resident(*device, "CIFAR-10 in GPU memory, crop, flip, float16", 50'000, 500, 32, 3, DType::kFloat16, true,
           rounds);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rows_bench: %s\n", error.what());
  return 1;
}

}  // namespace
}  // namespace headrace::gpu

int main(int argc, char** argv) {
  // Write each line at once: a program that is killed loses the lines in its buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  int rounds = 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--launches") == 0)
      headrace::gpu::launches = std::clamp(std::atoi(argv[i + 1]), 1, headrace::gpu::kMostLaunches);
  }
  return headrace::gpu::run(rounds);
}
