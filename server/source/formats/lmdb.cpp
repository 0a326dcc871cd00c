#include "server/source/formats/lmdb.h"

#include <fmt/format.h>

#include "server/source/source_type.h"
#include "server/store/store.h"

namespace headrace::server::source {
namespace {

class Lmdb final : public Source {
 public:
  Lmdb(std::shared_ptr<const store::Store> store, bool verify) : store_(std::move(store)), verify_(verify) {}

  [[nodiscard]] std::uint64_t size() const override { return store_->size(); }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return store_->meta().fields; }
  Result<void> read(std::uint64_t index, Sample& out) const override {
    return read_fields(index, FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const override;
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override {
    return store_->whole_index(index);
  }
  [[nodiscard]] bool labelled() const override { return store_->meta().labelled; }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override { return store_->label(index); }
  [[nodiscard]] std::uint64_t most_values(std::size_t field, std::uint64_t rows) const override {
    return store_->most_values(field, rows);
  }
  [[nodiscard]] std::string name(std::uint64_t index) const override {
    const auto record = store_->record(index, store::Store::Extent::kHeads);
    return record ? std::string(record->name()) : fmt::format("sample {}", index);
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const override {
    return store_->meta().classes;
  }
  [[nodiscard]] std::uint64_t fingerprint() const override { return store_->meta().fingerprint(); }
  [[nodiscard]] std::optional<Error> fault() const override { return store_->fault(); }

 private:
  const std::shared_ptr<const store::Store> store_;
  const bool verify_;
};

Result<void> Lmdb::read_fields(std::uint64_t index, FieldSet wanted, Sample& out) const {
  const auto record = store_->record(index);
  if (!record) return fail(record.error());
  if (verify_ && !record->sound()) return fail(store_->damaged(index, "its checksum is wrong"));
  if (record->head().unreadable != 0)
    return fail(ErrorCode::kBadSample,
                fmt::format("{}: was a bad sample when it was packed, and is empty here", record->name()));
  out.item(fields().size() - 1);
  for (std::size_t f = 0; f < fields().size(); ++f)
    if (wanted.has(f) && !record->unpack(f, out.items[f]))
      return fail(store_->damaged(index, "its compressed bytes are damaged"));
  return {};
}

}  // namespace

Result<std::shared_ptr<const Source>> open_lmdb(const LmdbOptions& options) {
  auto store = store::Store::open(options.path, store::Store::Reading::kRandom);
  if (!store) return fail(store.error());
  return std::make_shared<Lmdb>(std::move(*store), options.verify);
}

described::Description<LmdbOptions> LmdbOptions::description() {
  using Self = LmdbOptions;
  return {
      "lmdb",
      "A database that `headrace pack` wrote.",
      {described::required("path", &Self::path, described::data_path(), "The folder with data.mdb."),
       described::key("verify", &Self::verify, described::boolean(),
                      "Compare the checksum of each record that is read (`headrace verify` compares all of "
                      "them once).")}};
}

namespace types {
SourceType lmdb() {
  return source_type<LmdbOptions>(
      {.in_memory = "records of a packed set are read where they lie, and the page cache keeps them",
       .mapped = true,
       .refuse =
           [](const std::string&) {
             return "a database is mapped, which no network can do: copy it to a local disk; over the "
                    "network, "
                    "WebDataset shards are read";
           }},
      [](const LmdbOptions& options, const OpenContext&) { return open_lmdb(options); });
}
}  // namespace types

}  // namespace headrace::server::source
