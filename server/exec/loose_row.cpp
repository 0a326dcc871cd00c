#include "server/exec/sample_maker.h"

namespace headrace::server::exec {

LooseRow::LooseRow(const SampleMaker& maker) : maker_(maker), ragged_(maker.fields().size()) {
  const auto size_of_dense = [&](std::size_t f) {
    return maker.fields()[f].kind == FieldKind::kDense ? maker.row_size(f) : 0;
  };
  std::size_t size = 0;
  for (std::size_t f = 0; f < ragged_.size(); ++f) size += size_of_dense(f);
  dense_.resize(size);
  std::byte* at = dense_.data();
  for (std::size_t f = 0; f < ragged_.size(); at += size_of_dense(f++))
    fields.push_back(maker.fields()[f].kind == FieldKind::kDense ? FieldTarget{at, nullptr}
                                                                 : FieldTarget{nullptr, &ragged_[f]});
}

std::vector<FieldSpec> LooseRow::specs() const {
  std::vector<FieldSpec> specs = maker_.fields();
  for (std::size_t f = 0; f < specs.size(); ++f) {
    if (specs[f].kind == FieldKind::kDense) continue;
    const std::size_t count = ragged_[f].size() / maker_.row_size(f);
    specs[f].shape.insert(specs[f].shape.begin(), static_cast<std::int64_t>(count));
    specs[f].kind = FieldKind::kDense;
    specs[f].ragged_capacity = 0;
  }
  return specs;
}

std::string LooseRow::bytes() const {
  std::string all;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].ragged != nullptr) {
      all.append(fields[f].ragged->begin(), fields[f].ragged->end());
    } else {
      all.append(reinterpret_cast<const char*>(fields[f].dense), maker_.row_size(f));
    }
  }
  return all;
}

Result<ShownRow> show_row(const SampleMaker& maker, std::uint64_t epoch, std::uint64_t position,
                          RowScratch& scratch) {
  auto fields = std::make_unique<LooseRow>(maker);
  auto row = maker.show(epoch, position, fields->fields, scratch);
  if (!row) return tl::make_unexpected(row.error());
  auto explanation = maker.explain(epoch, position, *row);
  if (!explanation) return tl::make_unexpected(explanation.error());
  return ShownRow{std::move(fields), std::move(*row), std::move(*explanation)};
}

}  // namespace headrace::server::exec
