// `headrace pack`: a source into one database.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>

#include "server/pack/packer.h"
#include "server/verbs/dataset.h"
#include "server/verbs/progress.h"

namespace headrace::server::verbs {
namespace {

struct PackArguments {
  DatasetArguments dataset;
  std::string out, store = "encoded", compress = "none", resize;
  unsigned threads = 0;
};

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

void print_summary(const PackArguments& arguments, const pack::PackReport& done, std::chrono::seconds time) {
  const auto percent = 100 * static_cast<double>(done.file_bytes) /
                       static_cast<double>(std::max<std::uint64_t>(done.raw_bytes, 1));
  fmt::print("{}: {} samples, {} of {} ({:.1f}%), {} here in {}\n", arguments.out, done.packed,
             human_bytes(done.file_bytes), human_bytes(done.raw_bytes), percent, done.packed - done.before,
             human_time(time));
  if (done.warned > 0)
    fmt::print(
        "warning: {} images were repaired while they were decoded; `warnings: bad` does not see that in "
        "the packed set\n",
        done.warned);
  if (done.undecodable > 0) {
    fmt::print(
        "warning: {} samples are bad and are packed as they are; a stream's on_error decides about them; "
        "the first {}:\n",
        done.undecodable, done.first_undecodable.size());
    for (const std::string& bad : done.first_undecodable) fmt::print("  {}\n", bad);
  }
  fmt::print("serve it: sources: {{packed: {{type: lmdb, path: {}}}}}\n", arguments.out);
}

int pack_source(const PackArguments& arguments) {
  const auto source = arguments.dataset.open();
  if (!source) return report(source.error());
  if (const std::string warning = (*source)->warning(); !warning.empty())
    fmt::print(stderr, "warning: {}\n", warning);
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  std::signal(SIGXFSZ, SIG_IGN);  // the write's own error names it
  const pack::PackOptions options{
      .how = {.storing = arguments.store == "decoded" ? store::Storing::kDecoded : store::Storing::kEncoded,
              .compression =
                  store::compression_from_name(arguments.compress).value_or(store::Compression::kNone),
              .resize = resize_of(arguments.resize).value_or(store::ResizeTo{})},
      .threads = threads_or_all(arguments.threads)};
  const auto start = std::chrono::steady_clock::now();
  std::optional<Progress> progress;
  const auto done =
      pack::pack(**source, arguments.out, options, stop, [&progress](const pack::PackProgress& now) {
        if (!progress) progress.emplace("pack", now.done, now.total);
        progress->tell(now.done, now.raw_bytes);
      });
  progress.reset();
  if (!done) return report(done.error());
  if (done->was_complete) {
    fmt::print("{} is complete already: {} samples, packed from this source in this way\n", arguments.out,
               done->packed);
    return 0;
  }
  if (done->stopped) {
    fmt::print(stderr,
               "headrace: stopped: {} holds {} of {} samples; run the same headrace pack again to go on\n",
               arguments.out, done->packed, done->total);
    return 128 + stopped_by;
  }
  print_summary(arguments, *done,
                std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start));
  return 0;
}

}  // namespace

void add_pack(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<PackArguments>();
  CLI::App* verb = app.add_subcommand(
      "pack", "Write a source into one LMDB database; the same command again goes on where one was stopped");
  arguments->dataset.add_to(*verb);
  verb->add_option("out", arguments->out, "Folder of the database; it is made")->required();
  verb->add_option("--store", arguments->store, "encoded: files as they are; decoded: 8-bit pixels")
      ->check(CLI::IsMember({"encoded", "decoded"}));
  verb->add_option("--compress", arguments->compress, "Of what shrinks by it: none, lz4, zstd")
      ->check(CLI::IsMember({"none", "lz4", "zstd"}));
  verb->add_option("--resize", arguments->resize,
                   "Images, for good, as torchvision's Resize does (encoded: they become PNG files)")
      ->check(kSize);
  verb->add_option("--threads", arguments->threads, "Threads; default: all that there are")
      ->check(CLI::Range(1U, 4096U));
  verb->callback([arguments, &exit_code] { exit_code = pack_source(*arguments); });
}

}  // namespace headrace::server::verbs
