#include "server/pack/packer.h"

#include <fmt/format.h>

#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "server/pack/convert.h"
#include "server/pack/in_order.h"

namespace headrace::server::pack {
namespace {

constexpr std::uint64_t kMostReadyBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMostAhead = 4096;

/// The database's description is JSON, which has room for UTF-8 alone; a replaced name would be another one.
Result<void> check_classes(const source::Source& source) {
  for (const std::string& name : source.class_names()) try {
      static_cast<void>(nlohmann::json(name).dump());
    } catch (const nlohmann::json::exception&) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the class of label {} has a name that is not UTF-8: rename its folder",
                              &name - source.class_names().data()));
    }
  return {};
}

store::Writer::Tables tables_of(const source::Source& source) {
  store::Writer::Tables tables;
  bool own = true;
  for (std::uint64_t i = 0; i < source.size(); ++i) {
    if (source.labelled()) tables.labels.push_back(static_cast<std::uint64_t>(source.label(i)));
    tables.wholes.push_back(source.whole_index(i));
    own = own && tables.wholes.back() == i;
  }
  if (own) tables.wholes.clear();
  return tables;
}

using Made = Result<Converted>;

Made make(Converter& converter, std::uint64_t index) try {
  return converter.convert(index);
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
                        const std::function<void(const PackProgress&)>& tell) {
  if (auto sound = check_classes(source); !sound) return fail(sound.error());
  auto fields = packed_fields(source, options.how);
  if (!fields) return fail(fields.error());
  store::Meta meta;
  meta.count = source.size();
  meta.fields = std::move(*fields);
  meta.labelled = source.labelled();
  meta.classes = source.class_names();
  meta.source_fingerprint = source.fingerprint();
  meta.options = options.how;
  auto writer = store::Writer::open(out, meta, options.writer);
  if (!writer) return fail(writer.error());

  PackReport report;
  report.was_complete = writer->complete();
  report.before = writer->next();
  report.total = source.size();
  const auto conclude = [&] {
    report.packed = writer->committed();
    report.raw_bytes = writer->meta().raw_bytes;
    report.file_bytes = writer->file_bytes();
    report.undecodable = writer->meta().undecodable;
    report.first_undecodable = writer->meta().first_undecodable;
    return report;
  };
  if (report.was_complete) return conclude();

  InOrder<Made> ready(report.before, report.total, kMostReadyBytes, kMostAhead);
  Result<void> done;
  {
    const Crew crew(options.threads, [&] {
      Converter converter(source, options.how);
      while (const auto index = ready.claim()) {
        Made made = make(converter, *index);
        const std::uint64_t bytes = made ? made->record.size() : 0;
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
      progress.raw_bytes += (*made)->facts.raw_bytes;
      report.warned += (*made)->warned ? 1 : 0;
      done = writer->append(std::move((*made)->record), (*made)->facts);
      ++progress.done;
      tell(progress);
    }
    ready.stop();
  }
  // What is ready need not be made again; unless it is the disk that failed.
  if (done || done.error().code != ErrorCode::kEnvironment) {
    const auto kept = writer->commit();
    if (done) done = kept;
  }
  if (!done) return fail(done.error());
  report.stopped = writer->next() < report.total;
  if (!report.stopped)
    if (auto finished = writer->finish(tables_of(source)); !finished) return fail(finished.error());
  return conclude();
}

}  // namespace headrace::server::pack
