// A source that forwards to another one; wrappers override only what they change. Not forwarded, because they
// would bypass a wrapper's read(): read_fields() and view_samples().
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/source/source.h"

namespace headrace::server::source {

class ForwardingSource : public Source {
 public:
  explicit ForwardingSource(std::shared_ptr<const Source> real) : real_(std::move(real)) {}
  [[nodiscard]] std::uint64_t size() const override { return real_->size(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return real_->fields(); }
  Result<void> read(std::uint64_t index, Sample& out) const override { return real_->read(index, out); }
  void will_read(FieldSet wanted) const override { real_->will_read(wanted); }
  [[nodiscard]] const Source& whole() const override {
    const Source& whole = real_->whole();
    return &whole == real_.get() ? *this : whole;
  }
  [[nodiscard]] std::uint64_t index_in_whole(std::uint64_t index) const override {
    return real_->index_in_whole(index);
  }
  [[nodiscard]] std::vector<std::uint64_t> distinct_sizes() const override { return real_->distinct_sizes(); }
  [[nodiscard]] std::uint64_t index_in_distinct(std::uint64_t index) const override {
    return real_->index_in_distinct(index);
  }
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override {
    return real_->whole_index(index);
  }
  [[nodiscard]] bool labelled() const override { return real_->labelled(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return real_->label(index); }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    return real_->most_values(field, rows);
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override { return real_->name(index); }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return real_->class_names(); }
  [[nodiscard]] std::uint64_t fingerprint() const override { return real_->fingerprint(); }
  [[nodiscard]] std::optional<Error> fault() const override { return real_->fault(); }
  [[nodiscard]] std::string warning() const override { return real_->warning(); }

 protected:
  [[nodiscard]] const Source& real() const { return *real_; }

 private:
  std::shared_ptr<const Source> real_;
};

}  // namespace headrace::server::source
