// Measures the cost of augmentations: CPU microseconds per picture of chains over decoded pixels, with and
// without them, and of the color kernels' scalar reference.
//   color_bench [ROUNDS]
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "server/transform/kernels/pixel_ops.h"
#include "server/transform/kernels/row_kernels.h"
#include "server/transform/op.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"

namespace {

using namespace headrace::server;
using namespace headrace::server::transform;

double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

struct Chain {
  const char* name;
  std::vector<Transform> transforms;
  double us = 1e12;  // the best round's mean
};

void measure(std::int32_t side, int rounds) {
  const nlohmann::json some = {0.7, 1.3};
  std::vector<Chain> chains{
      {"nothing", {}},
      {"brightness", {make_op("color_jitter", {{"brightness", some}})}},
      {"contrast", {make_op("color_jitter", {{"contrast", some}})}},
      {"saturation", {make_op("color_jitter", {{"saturation", some}})}},
      {"hue", {make_op("color_jitter", {{"hue", {-0.1, 0.1}}})}},
      {"grayscale", {make_op("random_grayscale", {{"p", 1}})}},
      {"color_jitter(.3, .3, .3, .1)",
       {make_op("color_jitter",
                {{"brightness", some}, {"contrast", some}, {"saturation", some}, {"hue", {-0.1, 0.1}}})}},
      {"color_jitter and random_grayscale(.2)",
       {make_op("color_jitter",
                {{"brightness", some}, {"contrast", some}, {"saturation", some}, {"hue", {-0.1, 0.1}}}),
        make_op("random_grayscale", {{"p", 0.2}})}},
      {"rand_augment", {make_op("rand_augment")}},
      {"trivial_augment_wide", {make_op("trivial_augment_wide")}},
      {"gaussian_blur 9", {make_op("gaussian_blur", {{"kernel_size", {9, 9}}})}},
      {"gaussian_blur 23", {make_op("gaussian_blur", {{"kernel_size", {23, 23}}})}},
      {"random_erasing random", {make_op("random_erasing", {{"p", 1}, {"value", "random"}})}}};
  std::mt19937 random(1);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(side) * static_cast<std::size_t>(side) * 3);
  for (auto& byte : pixels) byte = static_cast<std::uint8_t>(random());
  const Prepared image{pixels, {.width = side, .height = side, .channels = 3, .planar = false}, {side, side}};
  Scratch scratch;
  const int pictures = std::max(1, 4'000'000 / (side * side));
  for (int round = 0; round < rounds; ++round)
    for (Chain& chain : chains) {
      PlanConfig config;
      config.output = {headrace::DType::kFloat32, PixelLayout::kNchw};
      config.transforms = {make_op("random_horizontal_flip"), make_op("random_vertical_flip")};
      config.transforms.insert(config.transforms.end(), chain.transforms.begin(), chain.transforms.end());
      config.transforms.push_back(
          make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}}));
      if (config.transforms[config.transforms.size() - 2]->name() == "random_erasing")
        std::swap(config.transforms[config.transforms.size() - 1],
                  config.transforms[config.transforms.size() - 2]);
      config.input = {side, side};
      const Plan plan = Plan::compile(config).value();
      std::vector<std::byte> row(plan.row_bytes());
      const double start = cpu_us();
      for (int i = 0; i < pictures; ++i)
        plan.finish(image, {1, 0, static_cast<std::uint64_t>(i)}, scratch, row.data());
      chain.us = std::min(chain.us, (cpu_us() - start) / pictures);
    }
  fmt::print("{} x {} pixels, float32 NCHW, CPU us per picture\n", side, side);
  for (const Chain& chain : chains)
    fmt::print("  {:40} {:9.1f}   more than nothing: {:9.1f}\n", chain.name, chain.us,
               chain.us - chains[0].us);
}

void measure_twin() {
  std::vector<std::uint8_t> row(1024 * 3 + 64);
  std::mt19937 random(2);
  for (auto& byte : row) byte = static_cast<std::uint8_t>(random());
  std::vector<std::uint8_t> out(row.size());
  const std::vector<PointOp> ops{{.factor = 1.2F},
                                 {.kind = PointOp::Kind::kBlendGray, .factor = 0.8F},
                                 {.factor = 1.1F, .constant = 120},
                                 {.kind = PointOp::Kind::kHue, .shift = 20}};
  fmt::print("four operations on rows of 1024 pixels, CPU us per megapixel: ");
  for (const bool kernel : {false, true}) {
    const double start = cpu_us();
    for (int i = 0; i < 1024; ++i)
      (kernel ? apply_ops : scalar::apply_ops)(ops, row.data(), 1024, out.data(), true);
    fmt::print("{} {:.0f}{}", kernel ? "kernels" : "scalar reference", cpu_us() - start,
               kernel ? "\n" : ", ");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  measure(224, rounds);
  measure(1024, rounds);
  measure_twin();
}
