// Renders files with a plan and writes rows and drawn parameters for the proof in Python to check; also makes
// JPEG files.
//
//   pixel_dump render CONFIG.json OUT_DIR < list of files
//     writes OUT_DIR/rows.bin and prints one JSON line for each row
//   pixel_dump draws CONFIG.json FILE N
//     prints the parameters drawn at N positions, one JSON line each
//   pixel_dump jpeg OUT.jpg KIND.json
//     writes a JPEG: see JpegKind
//   pixel_dump uninitialized
//     prints a byte that Valgrind must complain of
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "server/decode/grow.h"
#include "server/transform/ops/ops.h"
#include "server/transform/plan.h"
#include "tests/pixels/make_jpeg.h"

namespace {

using namespace headrace::server::transform;
using nlohmann::json;

std::vector<std::uint8_t> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

Transform transform_of(const json& t) {
  json arguments = t;
  arguments.erase("op");
  return make_op(t.at("op").get<std::string>(), arguments);
}

Plan plan_of(const json& config) {
  PlanConfig plan;
  for (const auto& t : config.at("transforms")) plan.transforms.push_back(transform_of(t));
  plan.output.dtype = headrace::dtype_from_name(config.value("dtype", "uint8")).value();
  plan.output.layout = config.value("layout", "nchw") == "nchw" ? PixelLayout::kNchw : PixelLayout::kNhwc;
  plan.mask = config.value("mask", false);
  plan.warnings_are_bad = config.value("warnings_are_bad", false);
  plan.passes = config.value("pillow", 13) >= 13 ? ResizePasses::kPillow13 : ResizePasses::kHorizontalFirst;
  auto compiled = Plan::compile(plan);
  if (!compiled) throw std::runtime_error(compiled.error().to_string());
  return *compiled;
}

DrawKey key_of(const json& config, std::uint64_t position) {
  return {config.value("seed", std::uint64_t{1}), config.value("epoch", std::uint64_t{0}), position};
}

int render(const json& config, const std::string& folder) {
  const auto plan = plan_of(config);
  const auto per_file = config.value("rows_per_file", 1);
  Scratch scratch;
  std::ofstream rows(folder + "/rows.bin", std::ios::binary);
  std::vector<std::byte> row(plan.row_bytes());
  std::uint64_t position = 0;
  for (std::string path; std::getline(std::cin, path);) {
    const auto bytes = read_file(path);
    for (int i = 0; i < per_file; ++i, ++position) {
      const auto report = plan.render(bytes, key_of(config, position), scratch, row.data());
      json line = {{"file", path},
                   {"position", position},
                   {"bad", name_of(report.bad)},
                   {"detail", report.detail},
                   {"warned", report.warned}};
      if (report.bad == BadReason::kNone) {
        const auto parameters = plan.parameters(bytes, key_of(config, position));
        if (!parameters) throw std::runtime_error(parameters.error().to_string());
        line["parameters"] = *parameters;
        rows.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size()));
      }
      std::cout << line.dump() << '\n';
    }
  }
  return rows.good() ? 0 : 1;
}

int draws(const json& config, const std::string& file, std::uint64_t count) {
  const auto plan = plan_of(config);
  const auto bytes = read_file(file);
  for (std::uint64_t position = 0; position < count; ++position) {
    const auto parameters = plan.parameters(bytes, key_of(config, position));
    if (!parameters) throw std::runtime_error(parameters.error().to_string());
    std::cout << parameters->dump() << '\n';
  }
  return 0;
}

int jpeg(const std::string& path, const json& kind) {
  headrace::pixels::JpegKind k;
  k.width = kind.value("width", k.width);
  k.height = kind.value("height", k.height);
  k.components = kind.value("components", k.components);
  k.horizontal = kind.value("horizontal", k.horizontal);
  k.vertical = kind.value("vertical", k.vertical);
  k.progressive = kind.value("progressive", false);
  k.arithmetic = kind.value("arithmetic", false);
  k.ycck = kind.value("ycck", false);
  k.rgb = kind.value("rgb", false);
  k.restart_interval = kind.value("restart_interval", 0);
  k.seed = kind.value("seed", 1U);
  const auto bytes = headrace::pixels::make_jpeg(k);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return out.good() ? 0 : 1;
}

/// For the check of Valgrind's checks: a row of which one byte is out of use.
int uninitialized() {
  std::vector<std::uint8_t> row;
  headrace::server::decode::grow(row, 64);
  std::fill(row.begin() + 1, row.end(), std::uint8_t{1});
  std::cout.write(reinterpret_cast<const char*>(row.data()), 64).flush();
  return 0;
}

json read_json(const char* path) {
  std::ifstream in(path);
  return json::parse(in);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "render" && argc == 4) return render(read_json(argv[2]), argv[3]);
    if (verb == "draws" && argc == 5) return draws(read_json(argv[2]), argv[3], std::stoull(argv[4]));
    if (verb == "uninitialized" && argc == 2) return uninitialized();
    if (verb == "jpeg" && argc == 4) return jpeg(argv[2], json::parse(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "pixel_dump: {}\n", error.what());
    return 1;
  }
  fmt::print(stderr,
             "usage: pixel_dump render CONFIG DIR | draws CONFIG FILE N | jpeg OUT KIND | uninitialized\n");
  return 2;
}
