#include "server/source/combine/sample_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "server/sampler/alias_table.h"
#include "server/sampler/sampler.h"
#include "server/source/combine/name_index.h"
#include "server/source/files/text_lines.h"
#include "server/source/problems.h"

namespace headrace::server::source {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kBlanks = " \t";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// Any number that a double holds, even one that cannot be a weight.
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads the weights of the whole source, line by line.
class WeightFile {
 public:
  WeightFile(const Source& whole, const std::filesystem::path& file)
      : whole_(whole), file_(file), weights_(whole.size(), kNone) {}

  Result<std::vector<double>> read() {
    if (const auto why = each_line(file_, [this](auto line, auto text) { take(line, trimmed(text)); });
        !why.empty())
      problems_.add(fmt::format("{}: the weights cannot be read: {}", file_.string(), why));
    else if (!names_ && next_ != weights_.size() && problems_.none())
      problems_.add(fmt::format(
          "{}: holds {} weights, the source has {} samples: expected one per line, in the source's order",
          file_.string(), next_, weights_.size()));
    if (!problems_.none()) return fail(problems_.error(ErrorCode::kConfigInvalid));
    return std::move(weights_);
  }

 private:
  void take(std::uint64_t line, std::string_view text) {
    if (text.empty()) return;
    if (first_ && !number(text)) names_.emplace(whole_);
    first_ = false;
    const auto gap = text.find_last_of(kBlanks);
    const auto written = names_ && gap != std::string_view::npos ? text.substr(gap + 1) : text;
    const auto weight = number(written);
    if (!weight || (names_ && gap == std::string_view::npos)) {
      problems_.add(file_, line,
                    fmt::format("\"{}\" is not {}", text, names_ ? "\"relative/path weight\"" : "a number"));
    } else if (const auto fault = sampler::fault_of_weight(*weight); !fault.empty()) {
      problems_.add(file_, line, fmt::format("the weight {} {}", written, fault));
    } else if (names_) {
      put(line, trimmed(text.substr(0, gap)), *weight);
    } else {
      if (next_ < weights_.size()) weights_[next_] = *weight;
      ++next_;
    }
  }

  void put(std::uint64_t line, std::string_view path, double weight) {
    const auto found = names_->find(path);
    if (!found) {
      problems_.add(file_, line,
                    fmt::format("\"{}\" is not in the source; paths are relative to it, as \"{}\"", path,
                                whole_.name(0)));
    } else if (!std::isnan(weights_[*found])) {
      problems_.add(file_, line, fmt::format("\"{}\" has a weight already", path));
    } else {
      weights_[*found] = weight;
    }
  }

  const Source& whole_;
  const std::filesystem::path& file_;
  std::vector<double> weights_;
  std::optional<NameIndex> names_;  ///< none: the file has only numbers
  bool first_ = true;
  std::uint64_t next_ = 0;  ///< numbers read so far
  Problems problems_;
};

Result<void> check_size(const Source& source) {
  if (source.size() <= sampler::kMostSamples) return {};
  return fail(ErrorCode::kConfigInvalid, fmt::format("{} samples: sampling by weight supports at most {}",
                                                     source.size(), sampler::kMostSamples));
}

template <class T>
double as(std::span<const std::uint8_t> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return static_cast<double>(value);
}

/// A scalar's value; none: this type is not read as a weight.
std::optional<double> scalar(DType dtype, std::span<const std::uint8_t> bytes) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return as<std::uint8_t>(bytes);
    case DType::kInt8:
      return as<std::int8_t>(bytes);
    case DType::kInt16:
      return as<std::int16_t>(bytes);
    case DType::kInt32:
      return as<std::int32_t>(bytes);
    case DType::kInt64:
      return as<std::int64_t>(bytes);
    case DType::kFloat32:
      return as<float>(bytes);
    case DType::kFloat64:
      return as<double>(bytes);
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
  }
  return std::nullopt;
}

/// The field's index, or what is wrong with it.
Result<std::size_t> find_scalar(const std::vector<SourceField>& fields, const std::string& name) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.name == name; });
  if (found == fields.end()) {
    std::vector<std::string> names;
    names.reserve(fields.size());
    for (const auto& field : fields) names.push_back(field.name);
    return fail(ErrorCode::kConfigInvalid,
                fmt::format("the source has no field \"{}\"; fields: {}", name, fmt::join(names, ", ")));
  }
  const bool one = found->shape.empty() || found->shape == std::vector<std::int64_t>{1};
  const bool half = found->dtype == DType::kFloat16 || found->dtype == DType::kBFloat16;
  if (found->content != Content::kValues || !one || half)
    return fail(
        ErrorCode::kConfigInvalid,
        fmt::format("field \"{}\" is not a weight: it must hold one whole number, float32 or float64 per "
                    "sample",
                    name));
  return static_cast<std::size_t>(found - fields.begin());
}

}  // namespace

Result<std::vector<double>> read_weights(const Source& source, const std::filesystem::path& file,
                                         std::optional<double> other) {
  const Source& whole = source.whole();
  if (auto fits = check_size(whole); !fits) return fail(std::move(fits.error()));
  auto all = WeightFile(whole, file).read();
  if (!all) return all;
  std::vector<double> out(source.size());
  std::vector<std::string> without;
  std::uint64_t missing = 0;
  for (std::uint64_t i = 0; i < out.size(); ++i) {
    const double weight = (*all)[source.index_in_whole(i)];
    out[i] = std::isnan(weight) ? other.value_or(kNone) : weight;
    if (!std::isnan(out[i])) continue;
    if (without.size() < Problems::kShown) without.push_back(source.name(i));
    ++missing;
  }
  if (missing > 0)
    return fail(
        ErrorCode::kConfigInvalid,
        fmt::format("{}: {} of {} samples have no weight: {}{}; list them, or say what `other` samples "
                    "weigh",
                    file.string(), missing, out.size(), fmt::join(without, ", "),
                    missing > without.size() ? ", ..." : ""));
  return out;
}

Result<std::vector<double>> weights_in_field(const Source& source, const std::string& name) {
  if (auto fits = check_size(source); !fits) return fail(std::move(fits.error()));
  const auto field = find_scalar(source.fields(), name);
  if (!field) return fail(field.error());
  const DType dtype = source.fields()[*field].dtype;
  std::vector<double> out(source.size());
  Problems problems;
  Sample sample;
  for (std::uint64_t i = 0; i < out.size(); ++i) {
    if (auto read = source.read(i, sample); !read) {
      if (read.error().code != ErrorCode::kBadSample) return fail(std::move(read.error()));
      problems.add(
          fmt::format("{}: cannot be read for its weight: {}", source.name(i), read.error().message));
      continue;
    }
    const auto bytes = sample.items.at(*field).bytes;
    const auto weight = bytes.size() == size_of(dtype) ? scalar(dtype, bytes) : std::nullopt;
    if (!weight) {
      problems.add(fmt::format("{}: field \"{}\" holds {} bytes instead of {}", source.name(i), name,
                               bytes.size(), size_of(dtype)));
      continue;
    }
    if (const auto fault = sampler::fault_of_weight(*weight); !fault.empty())
      problems.add(fmt::format("{}: its weight {} {}", source.name(i), *weight, fault));
    out[i] = *weight;
  }
  if (!problems.none()) return fail(problems.error(ErrorCode::kConfigInvalid));
  return out;
}

}  // namespace headrace::server::source
