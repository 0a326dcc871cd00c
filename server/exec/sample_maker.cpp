#include "server/exec/sample_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "clientlib/base/contract.h"
#include "clientlib/ring/futex.h"
#include "server/exec/shown_name.h"
#include "server/log/log.h"
#include "server/sampler/philox.h"

namespace headrace::server::exec {

using decode::Bad;
using transform::BadReason;

namespace {

constexpr std::uint32_t kReplacementStage = 0xFFFF0000;
constexpr int kTries = 32;
constexpr std::size_t kFirst = 10;   // bad samples named in errors and stats
constexpr std::size_t kNamed = 100;  // bad samples named in the log

/// The samples tried for a row whose own sample is bad.
struct Substitutes {
  sampler::Draws draws;
  std::set<std::uint64_t> tried = {};  ///< includes the row's own sample
};

Bad mismatch(const FieldPlan& one, const transform::Size& size, const FieldPlan& other,
             const transform::Size& other_size) {
  const auto text = [](const FieldPlan& field, const transform::Size& base) {
    return fmt::format("`{}` has {} x {} pixels{}", field.spec.name, base.width * field.scale,
                       base.height * field.scale,
                       field.scale == 1 ? "" : fmt::format(" at scale {}", field.scale));
  };
  return {BadReason::kMismatch,
          fmt::format("{}, but {}: they cannot be cut alike", text(one, size), text(other, other_size))};
}

}  // namespace

SampleMaker::SampleMaker(std::shared_ptr<const source::Source> source, std::vector<FieldPlan> plans,
                         const SampleOptions& options)
    : source_(std::move(source)), plans_(std::move(plans)), options_(options) {
  if (!options_.sampler) options_.sampler = sampler::make_shuffled(source_->size(), options_.seed);
  for (const FieldPlan& plan : plans_) {
    decodes_ |= plan.plan.has_value();
    fields_.push_back(plan.spec);
    if (source_fields_.empty() || source_fields_.back() != plan.source_field)
      source_fields_.push_back(plan.source_field);
  }
  if (options_.mixer) {
    fields_.push_back(options_.mixer->label_field());
  } else if (source_->labelled()) {
    fields_.push_back(FieldSpec{"label", DType::kInt64, FieldKind::kDense, {}, 0});
  }
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    row_sizes_.push_back(row_bytes(fields_[f]));
    ring_row_sizes_.push_back(for_device(f) ? plans_[f].on_device->image().row_bytes() : row_sizes_[f]);
  }
  require(!options_.decoded || options_.decoded.fields() == plans_.size(), "expected a cache for each field");
  cuts_ = decodes_ && std::all_of(plans_.begin(), plans_.end(), [&](const FieldPlan& field) {
            if (!field.plan) return field.spec.kind == FieldKind::kDense;
            const transform::Plan& plan = field.ring_plan();
            return options_.decoded ? plan.may_cut_prepared() : plan.may_cut_bare();
          });
}

std::vector<DeviceImage> SampleMaker::on_device() const {
  std::vector<DeviceImage> out;
  for (std::size_t f = 0; f < plans_.size(); ++f) {
    if (!plans_[f].on_device) continue;
    out.push_back(plans_[f].on_device->image());
    out.back().field = static_cast<std::uint32_t>(f);
  }
  return out;
}

void SampleMaker::add_steps(std::size_t field, const transform::DrawKey& key, std::byte* row,
                            RowScratch& scratch) const {
  const transform::DeviceRows& rows = *plans_[field].on_device;
  const RowSteps steps = rows.draw(key, scratch.drawn);
  std::memcpy(row + rows.image().steps_offset(), &steps, sizeof steps);
}

Result<Row> SampleMaker::make(const sampler::EpochOrder& order, std::uint64_t epoch, std::uint64_t position,
                              RowTargets out, RowScratch& scratch, metrics::StreamCounters& counters) const {
  return make_row(order, epoch, position, out, scratch, counters, Purpose::kServed);
}

Result<Row> SampleMaker::show(std::uint64_t epoch, std::uint64_t position, RowTargets out,
                              RowScratch& scratch) const {
  metrics::StreamCounters uncounted;
  const auto epoch_order = order(epoch);
  auto row = make_row(epoch_order, epoch, position, out, scratch, uncounted, Purpose::kShown);
  if (row && options_.mixer) {
    const PlacedRow placed{position, row->label};
    if (auto mixed = mix_rows(epoch_order, epoch, {&placed, 1}, out, scratch); !mixed)
      return fail(mixed.error());
  }
  if (const auto lost = fault()) return tl::make_unexpected(*lost);
  return row;
}

Result<Row> SampleMaker::make_row(const sampler::EpochOrder& order, std::uint64_t epoch,
                                  std::uint64_t position, RowTargets out, RowScratch& scratch,
                                  metrics::StreamCounters& counters, Purpose purpose) const {
  Row row;
  std::uint64_t sample = order(position);
  std::optional<Substitutes> substitutes;
  for (int attempt = 0;; ++attempt) {
    const bool expected = attempt == 0 && purpose == Purpose::kServed;
    const auto bad = try_sample(sample, epoch, position, expected, out, scratch, counters);
    if (!bad || *bad)
      if (const auto lost = fault()) return tl::make_unexpected(*lost);
    if (!bad) return tl::make_unexpected(bad.error());
    if (!*bad) break;
    counters.errors[static_cast<std::size_t>((*bad)->reason)].add(1);
    if (options_.on_error == OnError::kMark) {
      row.replaced = true;
      break;
    }
    std::string why = fmt::format("{}: {}", shown_name(*source_, sample), to_string(**bad));
    if (row.because.empty()) scratch.bad = row.because = why;
    if (auto go_on = note_bad(sample, why, purpose); !go_on) return tl::make_unexpected(go_on.error());
    if (!substitutes) substitutes = Substitutes{{options_.seed, epoch, position, kReplacementStage}};
    substitutes->tried.insert(sample);
    if (attempt == kTries) {
      const std::size_t others = substitutes->tried.size() - 1;
      return fail(
          ErrorCode::kTooManyBadSamples,
          fmt::format(
              "{}; {}. Repair or remove bad files: `headrace check --all CONFIG` lists them", row.because,
              others == 0   ? "no other sample can replace it"
              : others == 1 ? "the only other sample that was tried is bad, too"
                            : fmt::format("all {} other samples that were tried are bad, too", others)));
    }
    sample = options_.sampler->substitute(sample, substitutes->draws);
    row.replaced = true;
  }
  if (row.replaced) counters.replaced.add(1);
  row.sample_index = source_->whole_index(sample);
  row.label = source_->label(sample);
  if (options_.mixer) {
    if (auto known = options_.mixer->check_label(row.label); !known)
      return fail(known.error().code,
                  fmt::format("sample {}: {}", shown_name(*source_, sample), known.error().message));
  } else if (plans_.size() < fields_.size()) {
    std::memcpy(out.back().dense, &row.label, sizeof row.label);
  }
  counters.samples.add(1);
  return row;
}

Result<std::optional<Bad>> SampleMaker::try_sample(std::uint64_t sample, std::uint64_t epoch,
                                                   std::uint64_t position, bool expected, RowTargets out,
                                                   RowScratch& scratch,
                                                   metrics::StreamCounters& counters) const try {
  const transform::DrawKey key{options_.seed, epoch, position};
  cache::SampleCaches::Claims claims;
  scratch.kept.clear();
  if (options_.decoded && options_.decoded.lookup(source_->index_in_distinct(sample), scratch.kept, claims)) {
    // Another row may have put it into the cache since it was expected.
    if (expected && options_.read_ahead) options_.read_ahead->forget({&sample, 1});
    set_inputs(scratch);
    auto made = make_fields(sample, key, out, scratch, counters);
    if (made && !*made) counters.cached.add(1);
    return made;
  }
  if (auto read = read_missing(sample, expected, scratch, counters); !read) {
    if (read.error().code != ErrorCode::kBadSample) return tl::make_unexpected(read.error());
    return Bad{BadReason::kUnreadable, std::move(read.error().message)};
  }
  set_inputs(scratch);
  prepare_claimed(claims, scratch, counters);
  auto made = make_fields(sample, key, out, scratch, counters);
  if (claims.empty() || !made) return made;
  if (*made) {
    claims.refuse(scratch.to_keep);
  } else {
    claims.admit(scratch.to_keep);
  }
  return made;
} catch (const std::bad_alloc&) {
  return Bad{BadReason::kTooLarge, "no memory to read it"};
} catch (const std::length_error&) {
  return Bad{BadReason::kTooLarge, "no memory to read it"};
}

Result<void> SampleMaker::read_missing(std::uint64_t sample, bool expected, RowScratch& scratch,
                                       metrics::StreamCounters& counters) const {
  // Without a decoder, two clock reads would cost more than the row itself.
  const std::uint64_t begin = decodes_ ? ring::monotonic_ns() : 0;
  source::FieldSet wanted = scratch.kept.empty() ? source::FieldSet::all() : source::FieldSet();
  for (std::size_t f = 0; f < scratch.kept.size(); ++f)
    if (scratch.kept[f] == nullptr) wanted.add(plans_[f].source_field);
  auto read = expected && options_.read_ahead ? options_.read_ahead->read(sample, scratch.sample)
                                              : source_->read_fields(sample, wanted, scratch.sample);
  if (decodes_) counters.stage(metrics::Stage::kRead).observe(ring::monotonic_ns() - begin);
  if (!read) return read;
  // The sample belongs to the worker and is used for all streams: further items may be another source's.
  for (const std::size_t field : source_fields_)
    if (wanted.has(field)) counters.read_bytes.add(scratch.sample.items[field].bytes.size());
  return {};
}

void SampleMaker::prepare_claimed(const cache::SampleCaches::Claims& claims, RowScratch& scratch,
                                  metrics::StreamCounters& counters) const {
  if (claims.empty()) return;
  scratch.to_keep.assign(plans_.size(), nullptr);
  const auto prepare_all = [&](bool images) {
    for (const auto& claim : claims.all())
      if (plans_[claim.field].plan.has_value() == images &&
          prepare(claim.field, claims.room(), scratch, counters))
        scratch.to_keep[claim.field] = &scratch.inputs[claim.field].piece;
  };
  prepare_all(true);
  // Keep values only with all images: otherwise the sample is read again anyway.
  for (std::size_t f = 0; f < plans_.size(); ++f)
    if (plans_[f].plan && !scratch.inputs[f].prepared) return;
  prepare_all(false);
}

void SampleMaker::set_inputs(RowScratch& scratch) const {
  scratch.inputs.clear();
  for (std::size_t f = 0; f < plans_.size(); ++f) {
    if (f < scratch.kept.size() && scratch.kept[f] != nullptr) {
      scratch.inputs.push_back({*scratch.kept[f], true});
    } else {
      const source::Item& item = scratch.sample.items[plans_[f].source_field];
      scratch.inputs.push_back({{item.bytes, item.pixels, {}}, false});
    }
  }
}

bool SampleMaker::prepare(std::size_t field, std::uint64_t room, RowScratch& scratch,
                          metrics::StreamCounters& counters) const {
  FieldInput& input = scratch.inputs[field];
  if (!plans_[field].plan) return input.piece.bytes.size() <= room;
  const std::uint64_t begin = ring::monotonic_ns();
  const source::Item& item = scratch.sample.items[plans_[field].source_field];
  scratch.prepared.resize(std::max(scratch.prepared.size(), plans_.size()));
  transform::Prepared made;
  if (!plans_[field].plan->prepare(item.image(), scratch.pixels, room, scratch.prepared[field], made))
    return false;
  counters.stage(metrics::Stage::kDecode).observe(ring::monotonic_ns() - begin);
  input = {{made.bytes, made.pixels, {made.base.width, made.base.height}}, true};
  return true;
}

Result<std::optional<Bad>> SampleMaker::make_fields(std::uint64_t sample, const transform::DrawKey& key,
                                                    RowTargets out, RowScratch& scratch,
                                                    metrics::StreamCounters& counters) const {
  std::optional<std::size_t> first;  // first of the fields that are cut together
  transform::Size first_size;
  for (std::size_t f = 0; f < plans_.size(); ++f) {
    if (!plans_[f].plan) {
      if (auto copied = copy_values(f, scratch.inputs[f].piece.bytes, sample, out[f]); !copied)
        return fail(copied.error());
      continue;
    }
    const auto size = render(f, key, scratch, out[f], counters);
    if (!size) return size.error();
    if (!plans_[f].aligned) continue;
    if (!first) first_size = *size;
    if (size->height != first_size.height || size->width != first_size.width)
      return mismatch(plans_[*first], first_size, plans_[f], *size);
    if (!first) first = f;
  }
  return std::nullopt;
}

decode::Decoded<transform::Size> SampleMaker::render(std::size_t field, const transform::DrawKey& key,
                                                     RowScratch& scratch, const FieldTarget& out,
                                                     metrics::StreamCounters& counters) const {
  using Part = FieldTarget::Part;
  const transform::Plan& plan = out.part == Part::kShared   ? *shared_.fields[field].first
                                : out.part == Part::kDevice ? plans_[field].ring_plan()
                                                            : *plans_[field].plan;
  const auto& [image, prepared] = scratch.inputs[field];
  const transform::Prepared kept{image.bytes, image.pixels, {image.base.height, image.base.width}};
  transform::RenderReport report =
      prepared ? plan.finish(kept, key, scratch.pixels, out.dense)
               : plan.render({image.bytes, image.pixels}, key, scratch.pixels, out.dense);
  if (out.part == Part::kDevice && report.bad == BadReason::kNone) add_steps(field, key, out.dense, scratch);
  if (!prepared) counters.stage(metrics::Stage::kDecode).observe(report.decode_ns);
  if (report.bad != BadReason::kNone) {
    const bool several = plans_.size() > 1;
    return decode::bad(report.bad, several ? fmt::format("field `{}`: {}", fields_[field].name, report.detail)
                                           : std::move(report.detail));
  }
  counters.stage(metrics::Stage::kTransform).observe(report.transform_ns);
  if (!prepared)
    counters.pixels.add(static_cast<std::uint64_t>(report.base.width) * report.base.height *
                        plans_[field].scale * plans_[field].scale);
  if (report.warned) counters.errors[static_cast<std::size_t>(BadReason::kWarning)].add(1);
  return report.base;
}

Result<void> SampleMaker::copy_values(std::size_t field, std::span<const std::uint8_t> bytes,
                                      std::uint64_t sample, const FieldTarget& out) const {
  if (out.ragged != nullptr) {
    if (bytes.size() % row_sizes_[field] != 0)
      return fail(
          ErrorCode::kDatasetInvalid,
          fmt::format("sample {}: field `{}` has {} bytes, no multiple of a value's {}",
                      shown_name(*source_, sample), fields_[field].name, bytes.size(), row_sizes_[field]));
    out.ragged->assign(bytes.begin(), bytes.end());
    return {};
  }
  if (bytes.size() != row_sizes_[field])
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("sample {}: field `{}` has {} bytes instead of {}", shown_name(*source_, sample),
                            fields_[field].name, bytes.size(), row_sizes_[field]));
  std::memcpy(out.dense, bytes.data(), bytes.size());
  return {};
}

Result<void> SampleMaker::note_bad(std::uint64_t sample, const std::string& why, Purpose purpose) const {
  if (options_.on_error == OnError::kFail)
    return fail(
        ErrorCode::kBadSample,
        fmt::format(
            "{}; the stream's on_error is `fail`: repair or remove the file, or set `on_error: replace`",
            why));
  if (purpose == Purpose::kShown) return {};
  const std::scoped_lock lock(bad_mutex_);
  if (bad_.insert(sample).second) {
    if (bad_.size() <= kNamed) log::warn("stream `{}`: bad sample, replaced: {}", options_.stream, why);
    if (bad_.size() == kNamed)
      log::warn("stream `{}`: further bad samples are only counted (headrace_sample_errors_total)",
                options_.stream);
    if (first_bad_.size() < kFirst) first_bad_.push_back(why);
  }
  if (static_cast<double>(bad_.size()) <= allowed_bad()) return {};
  return fail(ErrorCode::kTooManyBadSamples,
              fmt::format("{} of {} samples are bad, max_bad is {}; repair or remove the bad ones, which "
                          "`headrace check --all CONFIG` lists, or raise max_bad. The first {}:\n  {}",
                          bad_.size(), options_.sampler->reach(), options_.max_bad, first_bad_.size(),
                          fmt::join(first_bad_, "\n  ")));
}

double SampleMaker::allowed_bad() const {
  if (options_.on_error == OnError::kFail) return 0;
  return options_.max_bad * static_cast<double>(options_.sampler->reach());
}

SampleMaker::BadSamples SampleMaker::bad_samples() const {
  const std::scoped_lock lock(bad_mutex_);
  return {bad_.size(), first_bad_};
}

Result<SampleMaker::Explanation> SampleMaker::explain(std::uint64_t epoch, std::uint64_t position,
                                                      const Row& row) const {
  Explanation result;
  const std::uint64_t wanted = row.sample_index;
  std::uint64_t sample = order(epoch)(position);
  sampler::Draws draws(options_.seed, epoch, position, kReplacementStage);
  for (int attempt = 0; attempt < kTries && source_->whole_index(sample) != wanted; ++attempt)
    sample = options_.sampler->substitute(sample, draws);
  result.name = source_->name(sample);
  result.sample = sample;
  result.parameters = "[]";
  if (!decodes_) return result;
  source::Sample read_again;
  if (auto read = source_->read(sample, read_again); !read) return tl::make_unexpected(read.error());
  nlohmann::json all = nlohmann::json::object();
  nlohmann::json last;
  for (std::size_t f = 0; f < plans_.size(); ++f) {
    if (!plans_[f].plan) continue;
    auto parameters = plans_[f].plan->parameters(read_again.items[plans_[f].source_field].image(),
                                                 {options_.seed, epoch, position});
    if (!parameters) return tl::make_unexpected(parameters.error());
    all[fields_[f].name] = last = std::move(*parameters);
  }
  if (all.size() == 1) all = std::move(last);
  if (options_.mixer) {
    const auto how = options_.mixer->draw({options_.seed, epoch, position});
    all.push_back(transform::describe(how, transform::partner_of(position, size())));
  }
  result.parameters = all.dump();
  return result;
}

}  // namespace headrace::server::exec
