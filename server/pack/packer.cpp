#include "server/pack/packer.h"

#include <fmt/format.h>

#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "server/pack/convert.h"
#include "server/pack/in_order.h"
#include "server/pack/source_input.h"

namespace headrace::server::pack {
namespace {

constexpr std::uint64_t kMostReadyBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMostAhead = 4096;
constexpr std::uint64_t kUnknownEnd = std::numeric_limits<std::uint64_t>::max();

/// The description is JSON, which can hold only UTF-8; replacing bytes of a name would change it.
Result<void> check_classes(const std::vector<std::string>& classes) {
  for (const std::string& name : classes) try {
      static_cast<void>(nlohmann::json(name).dump());
    } catch (const nlohmann::json::exception&) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the class of label {} has a name that is not UTF-8: rename its folder",
                              &name - classes.data()));
    }
  return {};
}

/// nullopt: there is no such sample.
using Made = Result<std::optional<Converted>>;

Made make(Input& input, Converter& converter, std::uint64_t index, InputSample& sample) try {
  const auto there = input.read(index, sample);
  if (!there) return fail(there.error());
  if (!*there) return std::nullopt;
  auto made = converter.convert(index, sample);
  if (const auto lost = input.fault()) return fail(*lost);
  return made;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::kEnvironment,
              fmt::format("no memory for sample {}: pack with fewer --threads", index));
} catch (const std::length_error&) {
  return fail(ErrorCode::kEnvironment,
              fmt::format("no memory for sample {}: pack with fewer --threads", index));
}

}  // namespace

Result<PackReport> pack(const source::Source& source, const std::filesystem::path& out,
                        const PackOptions& options, const std::atomic<bool>& stop,
                        const std::function<void(const PackProgress&)>& on_progress) {
  SourceInput input(source);
  return pack(input, out, options, stop, on_progress);
}

Result<PackReport> pack(Input& input, const std::filesystem::path& out, const PackOptions& options,
                        const std::atomic<bool>& stop,
                        const std::function<void(const PackProgress&)>& on_progress) {
  store::Meta meta = input.meta();
  if (auto sound = check_classes(meta.classes); !sound) return fail(sound.error());
  auto fields = packed_fields(meta.fields, options.how);
  if (!fields) return fail(fields.error());
  meta.fields = std::move(*fields);
  meta.options = options.how;
  auto writer = store::Writer::open(out, meta, options.writer);
  if (!writer) return fail(writer.error());

  PackReport report;
  report.was_complete = writer->complete();
  report.before = writer->next();
  report.total = meta.count;
  const auto conclude = [&] {
    report.packed = writer->committed();
    if (report.total == 0) report.total = writer->meta().count;
    report.raw_bytes = writer->meta().raw_bytes;
    report.file_bytes = writer->file_bytes();
    report.undecodable = writer->meta().undecodable;
    report.first_undecodable = writer->meta().first_undecodable;
    return report;
  };
  if (auto begun = input.begin(report.before, report.was_complete); !begun) return fail(begun.error());
  if (report.was_complete) return conclude();

  // A streamed set ends where its input says so; only then is it known to be complete.
  const std::uint64_t end = meta.streamed ? kUnknownEnd : report.total;
  InOrder<Made> ready(report.before, end, kMostReadyBytes, kMostAhead);
  Result<void> done;
  {
    const ThreadGroup group(options.threads, [&] {
      Converter converter(input.meta().fields, options.how);
      InputSample sample;
      while (const auto index = ready.claim()) {
        Made made = make(input, converter, *index, sample);
        if (made && !*made) {
          // A stopped input has not ended.
          if (stop) {
            ready.stop();
          } else {
            ready.end_at(*index);
          }
          return;
        }
        const std::uint64_t bytes = made ? (*made)->record.size() : 0;
        ready.put(*index, bytes, std::move(made));
      }
    });
    PackProgress progress{report.before, report.total, 0};
    while (done && !stop) {
      auto made = ready.take();
      if (!made) break;
      if (!*made) {
        done = fail(made->error());
        break;
      }
      Converted& one = ***made;
      progress.raw_bytes += one.facts.raw_bytes;
      report.warned += one.warned ? 1 : 0;
      report.tiling += one.tiling;
      done = writer->append(std::move(one.record), one.facts);
      ++progress.done;
      on_progress(progress);
    }
    report.stopped = !ready.all_taken();
    ready.stop();
  }
  // Commit finished samples even after an error, unless the disk failed.
  if (done || done.error().code != ErrorCode::kEnvironment) {
    const auto kept = writer->commit();
    if (done) done = kept;
  }
  if (!done) return fail(done.error());
  if (!report.stopped) {
    const auto tables = input.tables();
    if (const auto lost = input.fault()) return fail(*lost);
    if (auto finished = writer->finish(tables); !finished) return fail(finished.error());
  }
  return conclude();
}

}  // namespace headrace::server::pack
