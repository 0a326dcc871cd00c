#include "tests/bench/rectangles.h"
#include "server/transform/ops/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace headrace::bench {

namespace transform = server::transform;

transform::Plan training_plan() {
  transform::PlanConfig config;
  config.transforms = {
      transform::make_op("random_resized_crop", {{"size", {224, 224}}}),
      transform::make_op("random_horizontal_flip"),
      transform::make_op("normalize", {{"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}})};
  config.output.dtype = DType::kFloat32;
  return transform::Plan::compile(config).value();
}

std::vector<Item> load_items(const std::string& folder, const transform::Plan& plan, std::uint64_t epoch) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto extension = entry.path().extension().string();
    if (extension == ".JPEG" || extension == ".jpg" || extension == ".jpeg")
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Item> items;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    Item item;
    item.bytes.assign(std::istreambuf_iterator<char>(in), {});
    const auto drawn = plan.parameters(item.bytes, {1, epoch, items.size()});
    if (!drawn) throw std::runtime_error(fmt::format("{}: {}", path, drawn.error().to_string()));
    const auto& crop = drawn->at(0);
    item.left = crop.at("left").get<std::int32_t>();
    item.top = crop.at("top").get<std::int32_t>();
    item.width = crop.at("width").get<std::int32_t>();
    item.height = crop.at("height").get<std::int32_t>();
    items.push_back(std::move(item));
  }
  if (items.empty()) throw std::runtime_error(folder + " holds no JPEG files");
  return items;
}

double thread_cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace headrace::bench
