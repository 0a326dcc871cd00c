// A trainer in C++: attaches to a stream, makes an optimization step per batch, and prints its progress as
// JSON lines.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "clientlib/examples/epoch_digest.h"
#include "clientlib/examples/softmax_model.h"
#include "headrace/client.h"

namespace {

struct Arguments {
  std::string address;
  std::string stream = "train";
  std::string client;
  int epochs = 3;
  int report = 5;
  float rate = 0.003F;
};

int give_up(const headrace::Error& error) {
  std::fprintf(stderr, "demo_trainer: %s\n", error.to_string().c_str());
  return 1;
}

void say(const nlohmann::json& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

int train(const Arguments& arguments) {
  auto client = headrace::Client::connect({.address = arguments.address});
  if (!client) return give_up(client.error());
  auto stream = client->open({.stream = arguments.stream, .client = arguments.client});
  if (!stream) return give_up(stream.error());

  SoftmaxModel model(stream->info().classes.size(), arguments.rate);
  EpochDigest digest;
  const auto begun = std::chrono::steady_clock::now();
  std::uint64_t images = 0;
  for (int epoch = 0; epoch < arguments.epochs; ++epoch) {
    double epoch_loss = 0;
    std::uint64_t batches = 0;
    for (;;) {
      auto batch = stream->next();
      if (!batch) return give_up(batch.error());
      if (!*batch) break;
      digest.add(**batch);
      const double loss = model.step(**batch);
      epoch_loss += loss;
      images += (*batch)->valid_rows();
      if (batches++ % static_cast<std::uint64_t>(arguments.report) == 0)
        say({{"event", "progress"},
             {"epoch", epoch},
             {"batch", batches},
             {"images", images},
             {"loss", loss}});
    }
    say({{"event", "epoch"},
         {"epoch", epoch},
         {"batches", batches},
         {"loss", epoch_loss / static_cast<double>(batches)},
         {"digest", digest.finish()}});
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  const std::chrono::duration<double> waited = stream->waited();
  say({{"event", "end"}, {"images", images}, {"seconds", seconds.count()}, {"waited", waited.count()}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("A small trainer over a Headrace stream of float32 images");
  app.add_option("--address", arguments.address, "The server's directory");
  app.add_option("--stream", arguments.stream);
  app.add_option("--client", arguments.client, "Name in metrics");
  app.add_option("--epochs", arguments.epochs)->check(CLI::PositiveNumber);
  app.add_option("--report", arguments.report, "Batches between two progress lines")
      ->check(CLI::PositiveNumber);
  app.add_option("--rate", arguments.rate, "Learning rate");
  CLI11_PARSE(app, argc, argv);
  return train(arguments);
}
