#include "server/source/combine/repeat.h"

#include <fmt/format.h>

#include <utility>

#include "server/source/combine/refs.h"
#include "server/source/fingerprint.h"
#include "server/source/member.h"

namespace headrace::server::source {
namespace {

class Repeat final : public Source {
 public:
  Repeat(std::shared_ptr<const Source> of, std::uint64_t times)
      : of_(std::move(of)),
        times_(times),
        once_(of_->size()),
        fingerprint_(Fingerprint().add("repeat").add(times).add(of_->fingerprint()).value()) {}

  [[nodiscard]] std::uint64_t size() const override { return times_ * once_; }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return of_->fields(); }
  Result<void> read(std::uint64_t index, Sample& out) const override { return of_->read(index % once_, out); }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override {
    return of_->read_fields(index % once_, wanted, out);
  }
  void will_read(FieldSet wanted) const override { of_->will_read(wanted); }
  bool view_samples(SampleView& view) const override {
    for (std::uint64_t& index : view.indices) index %= once_;
    return of_->view_samples(view);
  }
  [[nodiscard]] std::vector<std::uint64_t> distinct_sizes() const override { return of_->distinct_sizes(); }
  [[nodiscard]] std::uint64_t index_in_distinct(std::uint64_t index) const override {
    return of_->index_in_distinct(index % once_);
  }
  [[nodiscard]] bool labelled() const override { return of_->labelled(); }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return of_->label(index % once_); }
  /// A bound: each of the longest samples can occur `times` times.
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    return times_ * of_->most_values(field, (rows + times_ - 1) / times_);
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    return fmt::format("{}#{}", of_->name(index % once_), index / once_);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return of_->class_names(); }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::optional<Error> fault() const override { return of_->fault(); }

 private:
  const std::shared_ptr<const Source> of_;
  const std::uint64_t times_, once_, fingerprint_;
};

}  // namespace

Result<std::shared_ptr<const Source>> repeat(const std::shared_ptr<const Source>& of, std::uint64_t times) {
  if (times == 0 || times > kMostComposed / of->size())
    return fail(ErrorCode::kConfigInvalid, fmt::format("repeat: {} samples {} times; from 1 to {} in all are "
                                                       "possible",
                                                       of->size(), times, kMostComposed));
  return std::make_shared<Repeat>(of, times);
}

described::Description<RepeatOptions> RepeatOptions::description() {
  using Self = RepeatOptions;
  const auto count = described::converted<std::uint64_t, std::uint32_t>(
      described::count(), [](std::uint32_t n) { return std::uint64_t{n}; },
      [](std::uint64_t n) { return static_cast<std::uint32_t>(n); });
  return {
      "repeat",
      "Each sample of a source several times in an epoch.",
      {described::required("of", &Self::of, only_ref()), described::required("times", &Self::times, count)}};
}

namespace types {
SourceType repeat() {
  return source_type<RepeatOptions>({.in_memory = kMembersKeep, .keeps_in_members = true},
                                    [](const RepeatOptions& options, const OpenContext& context) {
                                      return source::repeat(context.members.front().source, options.times);
                                    });
}
}  // namespace types

}  // namespace headrace::server::source
