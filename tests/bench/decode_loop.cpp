// images/s and CPU time per image of bare libjpeg-turbo region-of-interest decodes over the rectangles that
// random_resized_crop draws: the yardstick for the whole server.
//   decode_loop FOLDER [--threads N] [--seconds S]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/bench/bare_decode.h"

int main(int argc, char** argv) {
  using namespace headrace::bench;
  std::string folder;
  unsigned threads = 1;
  double seconds = 5;
  CLI::App app{"Bare region-of-interest JPEG decodes"};
  app.add_option("folder", folder, "JPEG files")->required();
  app.add_option("--threads", threads, "decoding threads");
  app.add_option("--seconds", seconds, "how long");
  CLI11_PARSE(app, argc, argv);

  const auto items = load_items(folder, training_plan(), 0);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(seconds);
  std::atomic<std::size_t> next{0}, decoded{0};
  std::atomic<double> cpu{0};
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        BareDecoder decoder;
        const double before = thread_cpu_seconds();
        std::size_t mine = 0;
        for (; Clock::now() < end; ++mine) decoder.decode(items[next++ % items.size()]);
        decoded += mine;
        cpu += thread_cpu_seconds() - before;
      });
    }
  }
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  const auto images = static_cast<double>(decoded.load());
  fmt::print("threads {}  images/s {:.0f}  CPU us/image {:.1f}\n", threads, images / wall,
             cpu / images * 1e6);
}
