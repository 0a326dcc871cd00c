#include "headrace/maker.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <new>
#include <numeric>
#include <stop_token>
#include <system_error>
#include <utility>

#include "server/assembly/assemble.h"
#include "server/config/choose_stream.h"
#include "server/config/config.h"
#include "server/log/log.h"
#include "server/maker/make_batch.h"
#include "server/source/formats/supplied.h"

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
void reduce_to(config::Config& config, const std::string& name, bool caches) {
  std::erase_if(config.streams, [&](const auto& stream) { return stream.first != name; });
  config::StreamConfig& stream = config.streams.at(name);
  stream.plan.on_device = false;
  stream.resident = false;
  stream.sharing.wait_for = 1;
  stream.sharing.window = 0;
  for (auto& [source, options] : config.sources) {
    if (options.io) options.io->read_ahead = 0;  // the threads of a call read
    if (!caches) options.cache = {};
  }
}

/// Like assembly::assemble(), but `interrupt`, if there is one, ends it while it waits for the network.
Result<assembly::Assembly> assemble_until_interrupted(
    const config::Config& config, const std::function<bool()>& interrupt,
    const std::shared_ptr<const source::Supplied>& supplied) {
  if (!interrupt || supplied) return assembly::assemble(config, {}, supplied);
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
  Impl(assembly::Assembly opened, const MakerOptions& options, std::shared_ptr<source::Supplied> given)
      : supplied(std::move(given)),
        assembly(std::move(opened)),
        info(assembly.streams.front().info),
        batches(info, *assembly.streams.front().maker, options.threads, options.interrupt) {}

  [[nodiscard]] Result<std::uint32_t> ranks(std::uint32_t world_size) const {
    if (world_size == 0)
      return fail(ErrorCode::kInvalidArgument, "world_size is 0: expected the number of ranks, at least 1");
    return info.delivery == Delivery::kShard ? world_size : 1;
  }
  /// That an epoch has these positions.
  [[nodiscard]] Result<void> check(std::uint64_t first, std::uint32_t count) const;
  /// That the Maker can read samples.
  [[nodiscard]] Result<void> check_reads() const {
    if (!supplied) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}`: this Maker reads no data: pass the rows' samples", info.name));
  }
  [[nodiscard]] const exec::SampleMaker& maker() const { return *assembly.streams.front().maker; }
  [[nodiscard]] EpochPlan plan(std::uint32_t ranks) const {
    return {info.samples, info.batch_size, ranks, info.last};
  }

  const std::shared_ptr<source::Supplied> supplied;  ///< null: it reads the source
  std::mutex supplying;                              ///< locked while `supplied` has samples
  std::atomic<std::size_t> most_bytes{0};            ///< that samples() returned
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
  std::shared_ptr<source::Supplied> supplied;
  if (!options.source.empty()) {
    auto about = source::SuppliedAbout::from_json(options.source);
    if (!about) return fail(std::move(about.error()));
    supplied = std::make_shared<source::Supplied>(std::move(*about));
  }
  log_warnings();
  reduce_to(*config, *name, options.caches && !supplied);
  auto assembly = assemble_until_interrupted(*config, options.interrupt, supplied);
  if (!assembly) return fail(std::move(assembly.error()));
  return Maker(std::make_unique<Impl>(std::move(*assembly), options, std::move(supplied)));
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

Result<void> Maker::Impl::check(std::uint64_t first, std::uint32_t count) const {
  if (count == 0)
    return fail(ErrorCode::kInvalidArgument, "count is 0: expected a number of rows, at least 1");
  if (first >= info.samples || count > info.samples - first)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} row{} from position {}: stream `{}` has {} per epoch", count,
                            count == 1 ? "" : "s", first, info.name, info.samples));
  return {};
}

Result<BatchView> Maker::rows(std::uint64_t epoch, std::uint64_t first, std::uint32_t count) const {
  if (auto valid = impl_->check_reads(); !valid) return fail(std::move(valid.error()));
  if (auto valid = impl_->check(first, count); !valid) return fail(std::move(valid.error()));
  return impl_->batches.make({.epoch = epoch}, {.first = first, .rows = count, .valid = count});
}

Result<BatchView> Maker::batch(std::uint64_t epoch, std::uint64_t batch, std::uint32_t world_size,
                               std::uint32_t rank) const {
  const StreamInfo& info = impl_->info;
  if (auto valid = impl_->check_reads(); !valid) return fail(std::move(valid.error()));
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

Result<std::string> Maker::describe_source() const {
  if (auto valid = impl_->check_reads(); !valid) return fail(std::move(valid.error()));
  const exec::SampleMaker& maker = impl_->maker();
  const auto refuse = [&](const std::string& why) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream `{}`: its samples cannot be sent to another process: {}; let that process "
                    "read the source",
                    impl_->info.name, why));
  };
  if (maker.mixes()) return refuse("its rows are mixed with one another (`mix`)");
  for (const FieldSpec& field : impl_->info.fields)
    if (field.kind == FieldKind::kRagged)
      return refuse(fmt::format("the rows of field `{}` have different sizes", field.name));
  const source::Source& source = maker.source();
  source::SuppliedAbout about{.positions = maker.size(),
                              .fields = source.fields(),
                              .labelled = source.labelled(),
                              .classes = source.class_names(),
                              .fingerprint = source.fingerprint(),
                              .sampler_content = maker.sampler().content()};
  // The size that was found in the images (exec/common_size.h), which cannot be read there.
  for (const exec::FieldPlan& plan : maker.plans())
    if (plan.plan && !plan.ring_chain.derived) {
      about.fields[plan.source_field].height = plan.ring_chain.input.height;
      about.fields[plan.source_field].width = plan.ring_chain.input.width;
    }
  return about.to_json();
}

Result<std::vector<std::uint8_t>> Maker::samples(std::uint64_t epoch, std::uint64_t first,
                                                 std::uint32_t count) const try {
  if (auto valid = impl_->check_reads(); !valid) return fail(std::move(valid.error()));
  if (auto valid = impl_->check(first, count); !valid) return fail(std::move(valid.error()));
  std::vector<std::uint64_t> samples(count);
  std::iota(samples.begin(), samples.end(), first);
  impl_->maker().order(epoch).apply(samples);
  auto packed = source::pack_samples(impl_->maker().source(), samples, impl_->most_bytes);
  if (!packed)
    return fail(packed.error().code,
                fmt::format("stream `{}`: {}", impl_->info.name, packed.error().message));
  if (packed->size() > impl_->most_bytes) impl_->most_bytes = packed->size();
  return packed;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kNotEnoughMemory,
              fmt::format("no memory for the samples of {} rows: ask for fewer", count));
}

Result<BatchView> Maker::rows_of(std::span<const std::uint8_t> samples, std::uint64_t epoch,
                                 std::uint64_t first, std::uint32_t count) const {
  if (!impl_->supplied)
    return fail(ErrorCode::kInvalidArgument, "this Maker reads the source itself: leave the samples out");
  if (auto valid = impl_->check(first, count); !valid) return fail(std::move(valid.error()));
  const std::scoped_lock lock(impl_->supplying);
  if (auto given = impl_->supplied->hand_over(first, count, samples); !given) return fail(given.error());
  auto made = impl_->batches.make({.epoch = epoch}, {.first = first, .rows = count, .valid = count});
  impl_->supplied->take_back();
  return made;
}

}  // namespace headrace
