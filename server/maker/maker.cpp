#include "headrace/maker.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <exception>
#include <future>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <utility>

#include "server/assembly/assemble.h"
#include "server/config/choose_stream.h"
#include "server/config/config.h"
#include "server/log/log.h"
#include "server/maker/make_batch.h"

namespace headrace {
namespace {

using namespace server;

constexpr std::uint32_t kMostThreads = 1024;

/// Warnings, such as those about replaced samples, go to stderr, as those of clients do.
void log_warnings() {
  static std::once_flag once;
  std::call_once(once, [] {
    log::set_sink(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    log::set_level(log::Level::kWarning);
  });
}

/// Leaves only what concerns the rows of one stream.
void reduce_to(config::Config& config, const std::string& name) {
  std::erase_if(config.streams, [&](const auto& stream) { return stream.first != name; });
  config::StreamConfig& stream = config.streams.at(name);
  stream.plan.on_device = false;
  stream.resident = false;
  stream.sharing.wait_for = 1;
  stream.sharing.window = 0;
  for (auto& [source, options] : config.sources)
    if (options.io) options.io->read_ahead = 0;  // the threads of a call read
}

/// Like assembly::assemble(), but `interrupt`, if there is one, ends it while it waits for the network.
Result<assembly::Assembly> assemble_until_interrupted(const config::Config& config,
                                                      const std::function<bool()>& interrupt) {
  if (!interrupt) return assembly::assemble(config);
  std::stop_source reads;
  std::future<Result<assembly::Assembly>> opening;
  try {
    opening = std::async(std::launch::async, [&] { return assembly::assemble(config, reads.get_token()); });
  } catch (const std::system_error&) {  // no further thread can be created: nothing interrupts it
    return assembly::assemble(config);
  }
  while (opening.wait_for(maker::kBetweenInterrupts) != std::future_status::ready)
    if (interrupt()) reads.request_stop();
  auto assembly = opening.get();
  // Even if all was read by then: the sources have stopped for good.
  if (reads.stop_requested())
    return fail(ErrorCode::kTimeout, fmt::format("stream `{}`: interrupted while its source was opened",
                                                 config.streams.begin()->first));
  return assembly;
}

}  // namespace

struct Maker::Impl {
  Impl(assembly::Assembly opened, const MakerOptions& options)
      : assembly(std::move(opened)),
        info(assembly.streams.front().info),
        batches(info, *assembly.streams.front().maker, options.threads, options.interrupt) {}

  [[nodiscard]] Result<std::uint32_t> ranks(std::uint32_t world_size) const {
    if (world_size == 0)
      return fail(ErrorCode::kInvalidArgument, "world_size is 0: expected the number of ranks, at least 1");
    return info.delivery == Delivery::kShard ? world_size : 1;
  }
  [[nodiscard]] EpochPlan plan(std::uint32_t ranks) const {
    return {info.samples, info.batch_size, ranks, info.last};
  }

  const assembly::Assembly assembly;
  const StreamInfo& info;
  maker::BatchMaker batches;
};

Maker::Maker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Maker::Maker(Maker&&) noexcept = default;
Maker& Maker::operator=(Maker&&) noexcept = default;
Maker::~Maker() = default;

Result<Maker> Maker::open(const std::string& file, const MakerOptions& options) try {
  if (options.threads < 1 || options.threads > kMostThreads)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("threads is {}: expected 1 to {}", options.threads, kMostThreads));
  std::vector<config::Override> flags;
  for (const std::string& setting : options.set) {
    auto flag = config::parse_flag(setting, "set");
    if (!flag) return fail(std::move(flag.error()));
    flags.push_back(std::move(*flag));
  }
  auto config = config::load(file, flags);
  if (!config) return fail(std::move(config.error()));
  const auto name = config::choose_stream(*config, options.stream);
  if (!name) return fail(name.error());
  if (config->sources.at(config->streams.at(*name).source).feed() != nullptr)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}` is fed from outside and gives each batch once: there is no function "
                            "that makes its rows; choose another stream",
                            *name));
  log_warnings();
  reduce_to(*config, *name);
  auto assembly = assemble_until_interrupted(*config, options.interrupt);
  if (!assembly) return fail(std::move(assembly.error()));
  return Maker(std::make_unique<Impl>(std::move(*assembly), options));
} catch (const std::exception& error) {
  return fail(ErrorCode::kInternal, fmt::format("{}: {}", file, error.what()));
}

const StreamInfo& Maker::info() const {
  return impl_->info;
}

Result<std::uint64_t> Maker::length(std::uint32_t world_size) const {
  const auto ranks = impl_->ranks(world_size);
  if (!ranks) return fail(ranks.error());
  return impl_->plan(*ranks).length(0);
}

Result<BatchView> Maker::rows(std::uint64_t epoch, std::uint64_t first, std::uint32_t count) const {
  const StreamInfo& info = impl_->info;
  if (count == 0)
    return fail(ErrorCode::kInvalidArgument, "count is 0: expected a number of rows, at least 1");
  if (first >= info.samples || count > info.samples - first)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} row{} from position {}: stream `{}` has {} per epoch", count,
                            count == 1 ? "" : "s", first, info.name, info.samples));
  return impl_->batches.make({.epoch = epoch}, {.first = first, .rows = count, .valid = count});
}

Result<BatchView> Maker::batch(std::uint64_t epoch, std::uint64_t batch, std::uint32_t world_size,
                               std::uint32_t rank) const {
  const StreamInfo& info = impl_->info;
  const auto ranks = impl_->ranks(world_size);
  if (!ranks) return fail(ranks.error());
  if (info.delivery == Delivery::kShard && rank >= world_size)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank is {}: expected 0 to {}, because world_size is {}", rank, world_size - 1,
                            world_size));
  const EpochPlan plan = impl_->plan(*ranks);
  if (batch >= plan.length(0))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("batch is {}: stream `{}` has {} per epoch with world_size {}", batch, info.name,
                            plan.length(0), *ranks));
  return impl_->batches.make({.epoch = epoch, .batch = batch}, plan.rows(0, batch, *ranks == 1 ? 0 : rank));
}

}  // namespace headrace
