#include "server/source/combine/choose_fields.h"

#include <utility>

#include "server/source/combine/forwarding.h"

namespace headrace::server::source {
namespace {

class ChosenFields final : public ForwardingSource {
 public:
  ChosenFields(std::shared_ptr<const Source> source, FieldSet chosen)
      : ForwardingSource(std::move(source)), chosen_(chosen) {}

  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override {
    if (auto read = real().read_fields(index, wanted & chosen_, out); !read) return read;
    for (std::size_t f = 0; f < fields().size(); ++f)
      if (!chosen_.has(f)) out.item(f).bytes = {};
    return {};
  }
  void will_read(FieldSet wanted) const override { real().will_read(wanted & chosen_); }
  bool view_samples(SampleView& view) const override { return real().view_samples(view); }

 private:
  const FieldSet chosen_;
};

}  // namespace

std::shared_ptr<const Source> choose_fields(std::shared_ptr<const Source> source, FieldSet chosen) {
  if (chosen.has_all(source->fields().size())) return source;
  return std::make_shared<ChosenFields>(std::move(source), chosen);
}

}  // namespace headrace::server::source
