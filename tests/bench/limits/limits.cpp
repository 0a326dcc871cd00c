// The bare limits: CPU time per sample of the loops and decoders below every loader, on one thread, in turn.
//   limits [--jpeg DIR] [--png DIR] [--rounds R] [--seconds S] [--json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/bench/limits/loop.h"
#include "tests/bench/rectangles.h"

namespace {

/// Microseconds per sample. Doubles `samples` until they take `seconds`, and keeps the last number in it.
double us_per_sample(const headrace::bench::Loop& loop, double seconds, std::size_t& samples) {
  for (;;) {
    const double start = headrace::bench::thread_cpu_seconds();
    loop.run(samples);
    const double spent = headrace::bench::thread_cpu_seconds() - start;
    if (spent >= seconds) return 1e6 * spent / static_cast<double>(samples);
    samples *= 2;
  }
}

void append(std::vector<headrace::bench::Loop>& to, std::vector<headrace::bench::Loop> from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace headrace::bench;
  std::string jpeg, png;
  std::size_t rounds = 5;
  double seconds = 0.2;
  bool json = false;
  CLI::App app{"CPU time per sample of bare loops and decoders"};
  app.add_option("--jpeg", jpeg, "folder of JPEG files");
  app.add_option("--png", png, "folder of PNG files, two a pair");
  app.add_option("--rounds", rounds, "times that each loop is measured")->check(CLI::Range(1, 1000));
  app.add_option("--seconds", seconds, "least CPU time of each")->check(CLI::Range(0.001, 60.0));
  app.add_flag("--json", json, "print JSON");
  CLI11_PARSE(app, argc, argv);

  std::vector<Loop> loops = array_loops();
  if (!jpeg.empty()) append(loops, jpeg_loops(jpeg));
  if (!png.empty()) append(loops, png_loops(png));
  std::vector<std::size_t> samples(loops.size(), 1);
  std::vector<std::vector<double>> spent(loops.size());
  for (std::size_t i = 0; i < loops.size(); ++i) us_per_sample(loops[i], seconds, samples[i]);  // warms up
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < loops.size(); ++i)
      spent[i].push_back(us_per_sample(loops[i], seconds, samples[i]));

  nlohmann::json all = nlohmann::json::array();
  for (std::size_t i = 0; i < loops.size(); ++i) {
    std::sort(spent[i].begin(), spent[i].end());
    const double median = spent[i][rounds / 2];
    all.push_back(
        {{"name", loops[i].name}, {"us", median}, {"least", spent[i].front()}, {"most", spent[i].back()}});
    if (!json)
      fmt::print("{:<30}{:>10.2f}  {:.2f} to {:.2f} us\n", loops[i].name, median, spent[i].front(),
                 spent[i].back());
  }
  if (json) fmt::print("{}\n", all.dump());
} catch (const std::exception& error) {
  fmt::print(stderr, "limits: {}\n", error.what());
  return 2;
}
