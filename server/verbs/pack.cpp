// `headrace pack`: packs a source into one database.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "clientlib/base/human.h"
#include "server/pack/packer.h"
#include "server/pack/record_input.h"
#include "server/pack/source_input.h"
#include "server/verbs/dataset.h"
#include "server/verbs/progress.h"

namespace headrace::server::verbs {
namespace {

struct PackArguments {
  DatasetArguments dataset;
  std::string out, store = "tiled", compress = "none", resize;
  unsigned threads = 0;
  bool quiet = false, as_json = false;
};

constexpr std::string_view kRecords = "-";

std::atomic<bool> stop{false};
std::atomic<int> stopped_by{0};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

void ask_to_stop(int signal) {
  stopped_by = signal;
  stop = true;
}

constexpr std::int32_t kLargest = transform::kLargestSide;

std::optional<std::int32_t> side(const std::string& text) {
  std::int32_t value = 0;
  const bool sound = CLI::detail::lexical_cast(text, value) && value >= 1 && value <= kLargest;
  return sound ? std::optional(value) : std::nullopt;
}

std::optional<store::ResizeTo> resize_of(const std::string& text) {
  if (text.empty()) return store::ResizeTo{};
  const auto cross = text.find('x');
  if (cross == std::string::npos) {
    const auto shorter = side(text);
    return shorter ? std::optional(store::ResizeTo{.shorter = *shorter}) : std::nullopt;
  }
  const auto height = side(text.substr(0, cross)), width = side(text.substr(cross + 1));
  return height && width ? std::optional(store::ResizeTo{.height = *height, .width = *width}) : std::nullopt;
}

const CLI::Validator kSize(
    [](std::string& text) {
      return resize_of(text)
                 ? std::string()
                 : fmt::format("'{}' is neither N (the shorter side) nor HxW, of 1 to {}", text, kLargest);
    },
    "N|HxW");

/// How many images were packed as they were, and why.
std::map<std::string, std::uint64_t> not_tiled(const decode::TilingCounts& counts) {
  std::map<std::string, std::uint64_t> out;
  for (std::size_t i = 1; i < decode::kTilings; ++i)
    if (counts.files[i] > 0) out.emplace(decode::name_of(static_cast<decode::Tiling>(i)), counts.files[i]);
  return out;
}

/// Prints nothing if there was no image to tile.
void print_tiling(const decode::TilingCounts& counts) {
  std::vector<std::string> left;
  for (const auto& [why, files] : not_tiled(counts)) left.push_back(fmt::format("{} {}", files, why));
  const std::uint64_t tiled = counts.files[0];
  if (tiled > 0)
    fmt::print("{} tiled: {} became {} ({:+.1f}%)\n", count_of(tiled, "JPEG"), human_bytes(counts.before),
               human_bytes(counts.after),
               100 * (static_cast<double>(counts.after) / static_cast<double>(counts.before) - 1));
  if (!left.empty()) fmt::print("images packed as they were: {}\n", fmt::join(left, ", "));
}

void print_summary(const PackArguments& arguments, const pack::PackReport& done, std::chrono::seconds time) {
  fmt::print("{}: {}, {}, {} here in {}\n", arguments.out, count_of(done.packed, "sample"),
             share_of_raw(done.file_bytes, done.raw_bytes), done.packed - done.before, human_time(time));
  print_tiling(done.tiling);
  if (done.warned > 0)
    fmt::print(
        "warning: {} images were repaired while they were decoded; `warnings: bad` has no effect on them in "
        "the packed set\n",
        done.warned);
  if (done.undecodable > 0) {
    fmt::print(
        "warning: {} bad samples were packed unchanged; the stream's on_error decides whether they are "
        "replaced; the first {}:\n",
        done.undecodable, done.first_undecodable.size());
    for (const std::string& bad : done.first_undecodable) fmt::print("  {}\n", bad);
  }
  fmt::print("serve it: sources: {{packed: {{type: lmdb, path: {}}}}}\n", arguments.out);
}

nlohmann::json describe(const pack::PackReport& done) {
  return {{"complete", !done.stopped},
          {"before", done.before},
          {"packed", done.packed},
          {"raw_bytes", done.raw_bytes},
          {"file_bytes", done.file_bytes},
          {"undecodable", done.undecodable},
          {"tiled", done.tiling.files[0]},
          {"not_tiled", not_tiled(done.tiling)},
          {"first_undecodable", done.first_undecodable}};
}

Result<pack::PackReport> run(pack::Input& input, const PackArguments& arguments) {
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  const pack::PackOptions options{
      .how = {.storing = store::storing_from_name(arguments.store).value_or(store::Storing::kTiled),
              .compression =
                  store::compression_from_name(arguments.compress).value_or(store::Compression::kNone),
              .resize = resize_of(arguments.resize).value_or(store::ResizeTo{})},
      .threads = threads_or_all(arguments.threads)};
  std::optional<Progress> progress;
  return pack::pack(input, arguments.out, options, stop, [&](const pack::PackProgress& now) {
    if (arguments.quiet) return;
    if (!progress) progress.emplace("pack", now.done, now.total);
    progress->update(now.done, now.raw_bytes);
  });
}

/// The exit code after an error: an interrupt's if there was one, because an interrupt from a terminal also
/// ends the child that checks an existing database.
int failed(int code) {
  return stop ? 128 + stopped_by : code;
}

int pack_source(const PackArguments& arguments) {
  const auto source = arguments.dataset.open();
  if (!source) return report(source.error());
  const auto start = std::chrono::steady_clock::now();
  pack::SourceInput input(**source);
  const auto done = run(input, arguments);
  if (!done) return failed(report(done.error()));
  if (arguments.as_json) {
    print_as_json(describe(*done));
    return done->stopped ? 128 + stopped_by : 0;
  }
  if (done->was_complete) {
    fmt::print("{} is complete already: {} samples, packed from this source in this way\n", arguments.out,
               done->packed);
    return 0;
  }
  if (done->stopped) {
    fmt::print(stderr,
               "headrace: stopped: {} holds {} of {} samples; run the same command again to continue\n",
               arguments.out, done->packed, done->total);
    return 128 + stopped_by;
  }
  print_summary(arguments, *done,
                std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start));
  return 0;
}

/// Reports everything to the program that sends the records: the last line on stdout, including errors.
int pack_records(const PackArguments& arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto conclude = [](const nlohmann::json& line, int code) {
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return code;
  };
  const auto give_up = [&conclude](const Error& error) {
    return conclude({{"error", {{"code", headrace::name_of(error.code)}, {"message", error.message}}}},
                    failed(exit_code_of(error)));
  };
  if (!arguments.dataset.source.empty() || !arguments.dataset.part.empty())
    return report({ErrorCode::kInvalidArgument, "--source and --part do not go with records (SRC is -)"});
  auto input = pack::RecordInput::open(STDIN_FILENO, STDOUT_FILENO, stop);
  if (!input) return give_up(input.error());
  const auto done = run(**input, arguments);
  if (!done) return give_up(done.error());
  return conclude(describe(*done), done->stopped ? 128 + stopped_by : 0);
}

}  // namespace

void add_pack(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<PackArguments>();
  CLI::App* verb = app.add_subcommand(
      "pack", "Write a source into one LMDB database; the same command continues a run that was stopped");
  arguments->dataset.add_to(*verb);
  verb->footer(
      "If src is -, pack reads records from stdin, which headrace.pack() in Python writes; "
      "server/pack/record_input.h describes the format.");
  verb->add_option("out", arguments->out, "Folder of the database, which is created")
      ->type_name(kPath)
      ->required();
  verb->add_option(
          "--store", arguments->store,
          "tiled: JPEGs are rewritten without loss so that crops decode faster, and other files are kept "
          "unchanged; encoded: all files are kept unchanged; decoded: images are stored as 8-bit pixels")
      ->check(CLI::IsMember({"tiled", "encoded", "decoded"}))
      ->capture_default_str();
  verb->add_option("--compress", arguments->compress, "Compress what becomes smaller (default: none)")
      ->check(CLI::IsMember({"none", "lz4", "zstd"}));
  verb->add_option("--resize", arguments->resize,
                   "Store images in this size, resized as torchvision's Resize does (with --store encoded: "
                   "as PNG files)")
      ->check(kSize);
  verb->add_option("--threads", arguments->threads, "Number of threads (default: one for each available CPU)")
      ->check(CLI::Range(1U, 4096U));
  verb->add_flag("--quiet", arguments->quiet, "Show no progress");
  add_json(*verb, arguments->as_json);
  verb->callback([arguments, &exit_code] {
    exit_code = arguments->dataset.path == kRecords ? pack_records(*arguments) : pack_source(*arguments);
  });
}

}  // namespace headrace::server::verbs
