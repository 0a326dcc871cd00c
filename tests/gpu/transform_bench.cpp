// What the transform kernel takes for a batch, told in turns to a program that measures others in between
// (compare_transforms.py).
//
//   transform_bench DEVICE ROWS FOLDER
//
// Writes the pictures one after the other into FOLDER/pixels, prints what is done to them as one line of
// JSON, and then answers each line of its input, `CASE ROUNDS`, with one line: the microseconds of each round
// by the device's own clock, the upload of the steps included. FOLDER/CASE has the rows then. DEVICE "host":
// the twin, by the host's clock, to try the program itself.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "headrace/gpu_transform.h"
#include "tests/random_steps.h"

namespace {

using headrace::DType;
using headrace::or_throw;
using headrace::gpu::DeviceTransform;
using headrace::gpu::PictureAt;
using headrace::gpu::StreamHandle;
using headrace::gpu::testing::StepBatch;
using headrace::gpu::testing::StepMaker;
using headrace::pixels::PixelStepKind;
using headrace::pixels::RowSteps;

constexpr std::int32_t kSide = 224;

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "transform_bench: %s: %s\n", doing, cudaGetErrorString(error));
  std::exit(1);
}

class Memory {
 public:
  Memory(bool on_device, std::size_t bytes) : on_device_(on_device) {
    if (on_device)
      check(cudaMalloc(&memory_, bytes), "cudaMalloc");
    else
      memory_ = ::operator new(bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (on_device_)
      (void)cudaFree(memory_);
    else
      ::operator delete(memory_);
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
  void put(const std::vector<std::byte>& from) const {
    if (on_device_)
      check(cudaMemcpy(memory_, from.data(), from.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    else
      std::memcpy(memory_, from.data(), from.size());
  }
  void get(std::vector<std::byte>& to) const {
    if (on_device_)
      check(cudaMemcpy(to.data(), memory_, to.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    else
      std::memcpy(to.data(), memory_, to.size());
  }

 private:
  bool on_device_;
  void* memory_ = nullptr;
};

/// Microseconds of what `work` queues on the stream.
class Clock {
 public:
  explicit Clock(bool on_device) : on_device_(on_device) {
    if (!on_device) return;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  [[nodiscard]] StreamHandle stream() const { return reinterpret_cast<StreamHandle>(stream_); }

  template <class F>
  double time(const F& work) {
    if (!on_device_) {
      const auto begun = std::chrono::steady_clock::now();
      work();
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
    }
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    work();
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return 1e3 * static_cast<double>(ms);
  }

 private:
  bool on_device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double real(StepMaker& maker, double low, double high) {
  return low + (high - low) * maker.between(0, 1 << 20) / static_cast<double>(1 << 20);
}

/// RandomResizedCrop's own draw: 8 to 100% of the area, 3:4 to 4:3; the whole picture if ten do not fit.
RowSteps crop(StepMaker& maker, std::int32_t width, std::int32_t height) {
  RowSteps steps;
  steps.flags = static_cast<std::uint8_t>(RowSteps::kResized | (maker.coin() ? RowSteps::kMirrored : 0));
  steps.crop = {0, 0, width, height};
  for (int tries = 0; tries < 10; ++tries) {
    const double area = real(maker, 0.08, 1) * width * height;
    const double ratio = std::exp(real(maker, std::log(3.0 / 4), std::log(4.0 / 3)));
    const auto w = static_cast<std::int32_t>(std::lround(std::sqrt(area * ratio)));
    const auto h = static_cast<std::int32_t>(std::lround(std::sqrt(area / ratio)));
    if (w > width || h > height) continue;
    steps.crop = {maker.between(0, width - w), maker.between(0, height - h), w, h};
    break;
  }
  steps.resized_width = steps.resized_height = kSide;
  steps.window = {0, 0, kSide, kSide};
  return steps;
}

/// ColorJitter(.4, .4, .4, .1) in a drawn order, and RandomGrayscale(.2).
void colours(StepMaker& maker, RowSteps& steps) {
  PixelStepKind kinds[] = {PixelStepKind::kBrightness, PixelStepKind::kContrast, PixelStepKind::kSaturation,
                           PixelStepKind::kHue};
  for (std::int32_t i = 3; i > 0; --i) std::swap(kinds[i], kinds[maker.between(0, i)]);
  for (const auto kind : kinds)
    steps.ops[steps.op_count++] = {.kind = kind,
                                   .shift = static_cast<std::uint8_t>(maker.between(-25, 25)),
                                   .factor = static_cast<float>(real(maker, 0.6, 1.4))};
  if (maker.between(0, 4) == 0) steps.ops[steps.op_count++].kind = PixelStepKind::kGray;
}

/// Pictures of about 350 x 300: waves with noise on top, as photographs have neighbours that are alike.
StepBatch pictures(StepMaker& maker, int rows) {
  StepBatch batch;
  for (int row = 0; row < rows; ++row) {
    const std::int32_t width = maker.between(320, 380), height = maker.between(270, 330);
    batch.pictures.push_back({batch.pixels.size(), height, width});
    const double across = real(maker, 0.01, 0.1), down = real(maker, 0.01, 0.1);
    for (std::int32_t y = 0; y < height; ++y)
      for (std::int32_t x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c) {
          const double wave = 128 + 90 * std::sin(across * x + c) * std::cos(down * y - c);
          batch.pixels.push_back(static_cast<std::byte>(static_cast<int>(wave) + maker.between(-15, 15)));
        }
  }
  return batch;
}

nlohmann::json told(const StepBatch& batch, const std::vector<RowSteps>& plain,
                    const std::vector<RowSteps>& coloured) {
  auto rows = nlohmann::json::array();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    auto ops = nlohmann::json::array();
    for (std::size_t op = 0; op < coloured[i].op_count; ++op) {
      const auto& one = coloured[i].ops[op];
      ops.push_back({static_cast<int>(one.kind), static_cast<std::int8_t>(one.shift), one.factor});
    }
    const auto& cut = plain[i].crop;
    rows.push_back({{"offset", batch.pictures[i].offset},
                    {"size", {batch.pictures[i].height, batch.pictures[i].width}},
                    {"crop", {cut.top, cut.left, cut.height, cut.width}},
                    {"mirrored", (plain[i].flags & RowSteps::kMirrored) != 0},
                    {"ops", ops}});
  }
  return {{"side", kSide}, {"rows", rows}};
}

void write(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (file.flush()) return;
  std::fprintf(stderr, "transform_bench: cannot write %s\n", path.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: transform_bench DEVICE ROWS FOLDER\n");
    return 2;
  }
  const std::string device = argv[1], folder = argv[3];
  const bool on_device = device != "host";
  StepMaker maker(4);
  const StepBatch batch = pictures(maker, std::atoi(argv[2]));
  std::vector<RowSteps> plain, coloured;
  for (const PictureAt& picture : batch.pictures) {
    plain.push_back(crop(maker, picture.width, picture.height));
    coloured.push_back(plain.back());
    colours(maker, coloured.back());
  }
  const Memory in(on_device, batch.pixels.size());
  in.put(batch.pixels);
  Clock clock(on_device);
  write(folder + "/pixels", batch.pixels);
  std::cout << told(batch, plain, coloured).dump() << std::endl;

  std::string line, name;
  int rounds = 0;
  while (std::getline(std::cin, line) && std::istringstream(line) >> name >> rounds) {
    headrace::gpu::TransformOutput output{.height = kSide, .width = kSide};
    output.dtype = name.ends_with("float16") ? DType::kFloat16 : DType::kFloat32;
    output.mean = {0.485, 0.456, 0.406};
    output.std = {0.229, 0.224, 0.225};
    const auto& steps = name.starts_with("colours") ? coloured : plain;
    auto transform = or_throw(DeviceTransform::open(device, output));
    std::vector<std::byte> rows(steps.size() * output.row_bytes());
    const Memory out(on_device, rows.size());
    const auto once = [&] {
      or_throw(transform.launch(batch.view(in.data()), steps, out.data(), rows.size(), clock.stream()));
    };
    (void)clock.time(once);  // its buffers are made
    std::vector<double> us;
    for (int round = 0; round < rounds; ++round) us.push_back(clock.time(once));
    out.get(rows);
    write(std::string(folder).append("/").append(name), rows);
    std::cout << nlohmann::json(us).dump() << std::endl;
  }
}
