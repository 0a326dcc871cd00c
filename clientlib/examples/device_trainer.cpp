// A trainer in C++ whose batches are copied to a GPU ahead of its loop: like trainer.cpp, but it computes on
// its own CUDA stream. Prints its progress as JSON lines.
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "clientlib/examples/device_model.h"
#include "headrace/device_loader.h"

namespace {

using headrace::or_throw;

struct Arguments {
  std::string address;
  std::string stream = "train";
  std::string device = "cuda:0";
  std::uint32_t prefetch = 2;
  int epochs = 3;
  float rate = 0.003F;
};

void say(const nlohmann::json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

std::unique_ptr<DeviceModel> model_on(const std::string& device, std::size_t classes, float rate) {
  if (device == "host") return host_model(classes, rate);
  int ordinal = 0;
  if (const auto colon = device.find(':'); colon != std::string::npos)
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), ordinal);
  return cuda_model(ordinal, classes, rate);
}

int train(const Arguments& arguments) {
  auto client = or_throw(headrace::Client::connect({.address = arguments.address}));
  auto stream = or_throw(
      client.open({.stream = arguments.stream, .commits = headrace::Commits::kByCaller, .for_device = true}));
  const std::size_t classes = stream.info().classes.size();
  // Open the loader before the model: its error says why the device is not available.
  auto loader = or_throw(headrace::gpu::DeviceLoader::open(
      std::move(stream), {.engine = {.device = arguments.device}, .prefetch = arguments.prefetch}));
  const auto model = model_on(arguments.device, classes, arguments.rate);
  if (model == nullptr)
    throw std::runtime_error(
        "this device_trainer was built without CUDA (CMake found no CUDA toolkit with nvcc, or HEADRACE_CUDA "
        "is OFF): use --device host");

  const auto begun = std::chrono::steady_clock::now();
  std::uint64_t images = 0;
  for (int epoch = 0; epoch < arguments.epochs; ++epoch) {
    std::uint64_t batches = 0;
    while (auto batch = or_throw(loader->next())) {
      or_throw(batch->wait_on(model->stream()));  // the stream waits for the copy, this thread does not
      model->step(*batch);
      images += batch->rows().size();
      ++batches;
    }  // the batch's memory is reused after the queued step
    say({{"event", "epoch"}, {"epoch", epoch}, {"batches", batches}, {"loss", model->mean_loss()}});
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  const std::chrono::duration<double> waited = loader->waited();
  const headrace::gpu::EngineStats copies = loader->stats();
  say({{"event", "end"},
       {"device", loader->device_name()},
       {"images", images},
       {"seconds", seconds.count()},
       {"waited", waited.count()},
       {"copies", {{"direct", copies.direct_copies}, {"staged", copies.staged_copies}}}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("A small trainer over a Headrace stream of float32 images, on a GPU");
  app.add_option("--address", arguments.address, "The server's directory");
  app.add_option("--stream", arguments.stream, "The stream to train on");
  app.add_option("--device", arguments.device, "cuda:N, or host for the CPU backend, which needs no GPU");
  app.add_option("--prefetch", arguments.prefetch, "Batches that are copied ahead of the loop")
      ->check(CLI::PositiveNumber);
  app.add_option("--epochs", arguments.epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--rate", arguments.rate, "Learning rate");
  CLI11_PARSE(app, argc, argv);
  try {
    return train(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_trainer: %s\n", error.what());
    return 1;
  }
}
