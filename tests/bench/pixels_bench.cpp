// Compares the plan with the bare loop, file by file in turn, in one run: CPU time per image of each, and
// their ratio.
//   pixels_bench FOLDER [--threads N] [--rounds R]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <mutex>
#include <thread>

#include "tests/bench/bare_decode.h"

int main(int argc, char** argv) {
  using namespace headrace::bench;
  namespace transform = headrace::server::transform;
  std::string folder;
  unsigned threads = 1;
  std::size_t rounds = 4, slots = 256;
  CLI::App app{"Plan::render against bare region-of-interest JPEG decodes"};
  app.add_option("folder", folder, "JPEG files")->required();
  app.add_option("--threads", threads, "threads");
  app.add_option("--rounds", rounds, "times over all files");
  app.add_option("--slots", slots, "output rows written in turn, as in a ring");
  CLI11_PARSE(app, argc, argv);

  const auto plan = training_plan();
  const auto items = load_items(folder, plan, 0);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  double bare = 0, rendered = 0, decode = 0, transformed = 0;
  {
    std::vector<std::jthread> workers;
    for (unsigned t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        BareDecoder decoder;
        transform::Scratch scratch;
        std::vector<std::byte> memory(plan.row_bytes() * slots + 64);
        auto* const ring =
            memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);  // as a slot
        double my_bare = 0, my_rendered = 0, my_decode = 0, my_transform = 0;
        // The first tenth of a round warms caches and clocks.
        for (std::size_t i = 0; (i = next++) < items.size() * rounds + items.size() / 10;) {
          const auto position = i % items.size();
          const auto& item = items[position];
          auto* row = ring + i % slots * plan.row_bytes();
          const double a = thread_cpu_seconds();
          if (i % 2 == 0) decoder.decode(item);
          const double b = thread_cpu_seconds();
          const auto report = plan.render(item.bytes, {1, 0, position}, scratch, row);
          const double c = thread_cpu_seconds();
          if (i % 2 == 1) decoder.decode(item);
          const double d = thread_cpu_seconds();
          if (report.bad != transform::BadReason::kNone) fmt::print("{}: {}\n", position, report.detail);
          if (i < items.size() / 10) continue;
          my_bare += b - a + d - c;
          my_rendered += c - b;
          my_decode += static_cast<double>(report.decode_ns) * 1e-9;
          my_transform += static_cast<double>(report.transform_ns) * 1e-9;
        }
        const std::scoped_lock lock(mutex);
        bare += my_bare, rendered += my_rendered, decode += my_decode, transformed += my_transform;
      });
    }
  }
  const double n = static_cast<double>(items.size() * rounds);
  fmt::print(
      "threads {}  bare {:.1f} us/image  render {:.1f} us/image (decode {:.1f}, transform {:.1f} by wall "
      "clock)  "
      "ratio {:.3f}\n",
      threads, bare / n * 1e6, rendered / n * 1e6, decode / n * 1e6, transformed / n * 1e6, bare / rendered);
}
