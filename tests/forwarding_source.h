// A source that reads through another one: tests override what is to go wrong.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/source/source.h"

namespace headrace::testing {

class ForwardingSource : public server::source::Source {
 public:
  explicit ForwardingSource(std::shared_ptr<const server::source::Source> real) : real_(std::move(real)) {}
  [[nodiscard]] std::uint64_t size() const override { return real_->size(); }
  [[nodiscard]] const std::vector<server::source::SourceField>& fields() const override {
    return real_->fields();
  }
  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    return real_->read(index, out);
  }
  [[nodiscard]] bool labelled() const override { return real_->labelled(); }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    return real_->most_values(field, rows);
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return real_->label(index); }
  [[nodiscard]] std::string name(std::uint64_t index) const override { return real_->name(index); }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return real_->class_names(); }
  [[nodiscard]] std::uint64_t fingerprint() const override { return real_->fingerprint(); }

 private:
  std::shared_ptr<const server::source::Source> real_;
};

}  // namespace headrace::testing
