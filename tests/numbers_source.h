// A source in memory: every byte, name and class shows which sample it belongs to.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/source/fingerprint.h"
#include "server/source/source.h"

namespace headrace::testing {

struct NumbersOptions {
  std::uint64_t first = 0, count = 1;
  std::vector<std::string> classes = {"number"};  ///< label: the number modulo their count; empty: none
  std::vector<std::string> fields = {"x"};        ///< field k: `width` bytes, each the number + 100 * k
  std::int64_t width = 1;
  std::int64_t shift = 0;   ///< of labels: out of their range
  std::string ragged = {};  ///< one more field, of 1 + number % 5 bytes
};

class Numbers final : public server::source::Source {
 public:
  explicit Numbers(NumbersOptions options) : options_(std::move(options)) {
    for (const std::string& name : options_.fields)
      fields_.push_back({.name = name,
                         .content = server::source::Content::kValues,
                         .dtype = DType::kUInt8,
                         .shape = {options_.width}});
    if (!options_.ragged.empty())
      fields_.push_back({.name = options_.ragged,
                         .content = server::source::Content::kRagged,
                         .dtype = DType::kUInt8,
                         .shape = {}});
  }

  [[nodiscard]] std::uint64_t size() const override { return options_.count; }
  [[nodiscard]] const std::vector<server::source::SourceField>& fields() const override { return fields_; }
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    return read_fields(index, server::source::FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, server::source::FieldSet wanted,
                           server::source::Sample& out) const override {
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      if (!wanted.has(f)) continue;
      ++items_read;
      const bool ragged = f == options_.fields.size();
      auto& item = out.item(f);
      item.own(ragged ? length(index) : static_cast<std::size_t>(options_.width));
      for (auto& byte : item.storage) byte = static_cast<std::uint8_t>(number(index) + 100 * f);
    }
    return {};
  }
  [[nodiscard]] bool labelled() const override { return !options_.classes.empty(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override {
    if (options_.classes.empty()) return 0;
    return static_cast<std::int64_t>(number(index) % options_.classes.size()) + options_.shift;
  }
  [[nodiscard]] std::uint64_t most_values(std::size_t, std::uint64_t rows) const override { return rows * 5; }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    return "number " + std::to_string(number(index));
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return options_.classes; }
  [[nodiscard]] std::uint64_t fingerprint() const override {
    server::source::Fingerprint out;
    for (const std::string& name : options_.classes) out.add(name);
    return out.add(options_.first).add(options_.count).value();
  }

  mutable std::atomic<std::uint64_t> items_read{0};

  [[nodiscard]] std::uint64_t number(std::uint64_t index) const { return options_.first + index; }
  [[nodiscard]] std::size_t length(std::uint64_t index) const { return 1 + number(index) % 5; }

 private:
  const NumbersOptions options_;
  std::vector<server::source::SourceField> fields_;
};

}  // namespace headrace::testing
