// `headrace preview`: a sheet of what the transforms do to samples, beside the originals.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/assembly/assemble.h"
#include "server/config/choose_stream.h"
#include "server/pictures/png_file.h"
#include "server/pictures/sheet.h"
#include "server/status/picture.h"
#include "server/verbs/verbs.h"

namespace headrace::server::verbs {
namespace {

using nlohmann::json;
using pictures::Cell;

struct PreviewArguments {
  ConfigArguments config;
  std::string stream, out = "preview.png";
  std::uint64_t samples = 6, epochs = 4;
  std::int32_t side = 192;
};

/// "0.83", "true", "hue, contrast"
std::string text_of(const json& value) {
  if (value.is_number_float()) return fmt::format("{:.3g}", value.get<double>());
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const json& part : value) parts.push_back(text_of(part));
  return fmt::format("{}", fmt::join(parts, " "));
}

/// "random_resized_crop: top 3, left 5, height 100, width 80", for each transform of a field that draws
/// something.
std::vector<std::string> lines_of(const json& parameters, const std::string& field) {
  std::vector<std::string> lines;
  for (const json& step : parameters.is_object() ? parameters.value(field, json::array()) : parameters) {
    std::vector<std::string> values;
    for (const auto& [name, value] : step.items())
      if (name != "op") values.push_back(name + " " + text_of(value));
    if (!values.empty())
      lines.push_back(fmt::format("{}: {}", step.at("op").get<std::string>(), fmt::join(values, ", ")));
  }
  return lines;
}

/// A sample of the first epoch, as it is drawn in several epochs.
class Preview {
 public:
  /// `side`: of a picture.
  Preview(const exec::StreamSetup& setup, std::int32_t side)
      : setup_(setup), maker_(*setup.maker), side_(side) {}

  /// Rows for the first samples of epoch 0, one for each image field: the original, then its epochs.
  Result<std::vector<std::vector<Cell>>> rows(std::uint64_t samples, std::uint64_t epochs) {
    std::vector<Positions> positions;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) positions.push_back(positions_of(samples, epoch));
    std::vector<std::vector<Cell>> out;
    for (std::uint64_t i = 0; i < samples; ++i) {
      auto rows = rows_of(i, positions);
      if (!rows) return tl::make_unexpected(rows.error());
      std::move(rows->begin(), rows->end(), std::back_inserter(out));
    }
    return out;
  }

 private:
  /// Where an epoch has the samples; a sampler may leave one out.
  using Positions = std::vector<std::optional<std::uint64_t>>;

  Result<std::vector<std::vector<Cell>>> rows_of(std::uint64_t i, const std::vector<Positions>& positions) {
    std::vector<std::vector<Cell>> out;
    for (std::uint64_t epoch = 0; epoch < positions.size(); ++epoch) {
      const auto at = positions[epoch][i];
      std::optional<exec::ShownRow> shown;
      if (at) {
        auto made = exec::show_row(maker_, epoch, *at, scratch_);
        if (!made) return fail(made.error());
        shown = std::move(*made);
      }
      std::size_t row = 0;
      for (std::size_t field = 0; field < maker_.plans().size(); ++field) {
        if (!maker_.plans()[field].plan) continue;
        if (epoch == 0) out.push_back({original(*shown, field)});
        out[row++].push_back(
            shown
                ? drawn(*shown, field, epoch)
                : Cell{.picture = {}, .caption = {fmt::format("epoch {}: left out by the sampler", epoch)}});
      }
    }
    return out;
  }

  /// Positions of the first `samples` samples of epoch 0 in an epoch, which is read once at most.
  [[nodiscard]] Positions positions_of(std::uint64_t samples, std::uint64_t epoch) const {
    const auto first = maker_.order(0), order = maker_.order(epoch);
    Positions found(samples);
    std::unordered_multimap<std::uint64_t, std::uint64_t> missing;  // sample -> its number in `found`
    for (std::uint64_t i = 0; i < samples; ++i) missing.emplace(first(i), i);
    for (std::uint64_t position = 0; position < maker_.size() && !missing.empty(); ++position) {
      const auto [begin, end] = missing.equal_range(order(position));
      for (auto one = begin; one != end; ++one) found[one->second] = position;
      missing.erase(begin, end);
    }
    return found;
  }

  Cell original(const exec::ShownRow& shown, std::size_t field) {
    const exec::FieldPlan& plan = maker_.plans()[field];
    const auto& classes = setup_.info.classes;
    const auto label = static_cast<std::size_t>(shown.row.label);
    Cell cell;
    cell.caption = {shown.explanation.name};
    if (label < classes.size()) cell.caption.push_back(fmt::format("class {} ({})", classes[label], label));
    if (shown.row.replaced) cell.caption.emplace_back("replaces a bad sample");
    if (auto read = maker_.source().read(shown.explanation.sample, sample_); !read)
      cell.caption.push_back(read.error().message);
    else
      fill(cell, sample_.items[plan.source_field].image());
    return cell;
  }

  Cell drawn(const exec::ShownRow& shown, std::size_t field, std::uint64_t epoch) const {
    const exec::FieldPlan& plan = maker_.plans()[field];
    Cell cell{.picture = {}, .caption = {fmt::format("{}, epoch {}", plan.spec.name, epoch)}};
    for (std::string& line : lines_of(json::parse(shown.explanation.parameters), plan.spec.name))
      cell.caption.push_back(std::move(line));
    const pictures::Picture picture =
        status::picture_of_row(plan, {shown.fields->fields[field].dense, maker_.row_size(field)});
    fill(cell, {picture.pixels, picture.shape});
    return cell;
  }

  /// An image that cannot be decoded leaves the cell empty.
  void fill(Cell& cell, const decode::ImageData& image) const {
    if (auto fitted = pictures::fit(image, side_)) cell.picture = std::move(*fitted);
  }

  const exec::StreamSetup& setup_;
  const exec::SampleMaker& maker_;
  const std::int32_t side_;
  exec::RowScratch scratch_;
  source::Sample sample_;
};

Result<const exec::StreamSetup*> choose(const assembly::Assembly& assembly, const std::string& asked) {
  std::vector<std::string> names;
  for (const exec::StreamSetup& setup : assembly.streams) names.push_back(setup.info.name);
  const auto chosen = config::choose_stream(names, asked);
  if (!chosen) return fail(chosen.error());
  const std::string& name = *chosen;
  const auto at = std::find(names.begin(), names.end(), name) - names.begin();
  const exec::StreamSetup& setup = assembly.streams[static_cast<std::size_t>(at)];
  if (setup.info.live)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("stream `{}` cannot be shown, because another process feeds it: choose another --stream",
                    name));
  const auto& plans = setup.maker->plans();
  if (std::none_of(plans.begin(), plans.end(), [](const auto& plan) { return plan.plan.has_value(); }))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("stream `{}` has no image field: choose another --stream", name));
  return &setup;
}

Result<std::string> preview(const PreviewArguments& arguments) {
  auto config = arguments.config.load();
  if (!config) return fail(config.error());
  auto assembly = assembly::assemble(*config);
  if (!assembly) return fail(assembly.error());
  const auto setup = choose(*assembly, arguments.stream);
  if (!setup) return fail(setup.error());
  const std::uint64_t samples = std::min(arguments.samples, (*setup)->maker->size());
  const auto& plans = (*setup)->maker->plans();
  const auto images =
      std::count_if(plans.begin(), plans.end(), [](const auto& plan) { return plan.plan.has_value(); });
  if (auto fit =
          pictures::fits(samples * static_cast<std::size_t>(images), 1 + arguments.epochs, arguments.side);
      !fit)
    return fail(fit.error());
  const auto cells = Preview(**setup, arguments.side).rows(samples, arguments.epochs);
  if (!cells) return fail(cells.error());
  if (const auto lost = (*setup)->maker->fault()) return fail(*lost);
  const auto sheet = pictures::sheet(*cells, arguments.side);
  if (!sheet) return fail(sheet.error());
  const auto file = pictures::encode_png(sheet->pixels, sheet->shape);
  if (!file) return fail(file.error());
  if (auto written = write_file(arguments.out, std::as_bytes(std::span(*file))); !written)
    return fail(written.error());
  return fmt::format("{}: {} sample{} of stream {} in {} epoch{}, {} x {} pixels", arguments.out, samples,
                     samples == 1 ? "" : "s", (*setup)->info.name, arguments.epochs,
                     arguments.epochs == 1 ? "" : "s", sheet->shape.width, sheet->shape.height);
}

}  // namespace

void add_preview(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<PreviewArguments>();
  CLI::App* verb = app.add_subcommand(
      "preview", "Draw samples as the transforms make them in several epochs, beside the originals");
  arguments->config.add_to(*verb);
  verb->add_option("--stream", arguments->stream, "The stream to show" + std::string(kDefaultStream));
  verb->add_option("-o,--out", arguments->out, "PNG file to write (default: preview.png)")->type_name(kPath);
  verb->add_option("--samples", arguments->samples, "Number of samples, one below the other (default: 6)")
      ->check(CLI::Range(1U, 64U));
  verb->add_option("--epochs", arguments->epochs, "Number of epochs, one beside the other (default: 4)")
      ->check(CLI::Range(1U, 16U));
  verb->add_option("--side", arguments->side, "Side of a picture in pixels (default: 192)")
      ->check(CLI::Range(64, 1024));
  verb->callback([arguments, &exit_code] {
    const auto done = preview(*arguments);
    if (done) fmt::print("{}\n", *done);
    exit_code = done ? 0 : report(done.error());
  });
}

}  // namespace headrace::server::verbs
