#include "server/store/store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace headrace::server::store {
namespace {

std::uint64_t entry(Bytes table, std::uint64_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, table.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

Result<Found> inspect(const Env& env) {
  const auto txn = Txn::begin(env, false);
  if (!txn) return fail(txn.error());
  const std::string where = env.folder().string();
  auto text = txn->get(bytes_of(kMetaKey));
  if (!text) return fail(text.error());
  const bool finished = text->has_value();
  if (!finished) {
    text = txn->get(bytes_of(kPackingKey));
    if (!text) return fail(text.error());
  }
  if (!*text)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: this LMDB was not written by headrace pack (it has no record \"{}\"); "
                            "read BasicSR's with a source of type paired_folders, and pack others again from "
                            "their original files",
                            where, kMetaKey));
  auto meta = Meta::from_json({reinterpret_cast<const char*>((*text)->data()), (*text)->size()}, where);
  if (!meta) return fail(meta.error());
  meta->complete = meta->complete && finished;
  const std::uint64_t packed = meta->complete ? meta->count : txn->entries() - 1;
  std::error_code status;
  return Found{std::move(*meta), packed, std::filesystem::file_size(env.folder() / "data.mdb", status)};
}

Result<Found> inspect(const std::filesystem::path& folder) {
  const auto env = Env::open(folder, Env::Access::kRandom);
  if (!env) return fail(env.error());
  auto found = inspect(*env);
  if (const auto lost = env->fault()) return fail(*lost);
  return found;
}

Result<std::shared_ptr<const Store>> Store::open(const std::filesystem::path& folder, Reading reading) {
  auto env = Env::open(folder, reading == Reading::kRandom ? Env::Access::kRandom : Env::Access::kSequential);
  if (!env) return fail(env.error());
  const auto store = std::make_shared<Store>();
  store->env_ = std::move(*env);
  auto loaded = store->load();
  if (const auto lost = store->fault()) return fail(*lost);
  if (!loaded) return fail(std::move(loaded.error()));
  return store;
}

Result<void> Store::load() {
  const auto txn = Txn::begin(env_, false);
  if (!txn) return fail(txn.error());
  auto found = inspect(env_);
  if (!found) return fail(found.error());
  meta_ = std::move(found->meta);
  file_bytes_ = found->file_bytes;
  if (!meta_.complete)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: packing was not finished: {}{} samples; run the same headrace pack again",
                            folder().string(), found->packed,
                            meta_.count > 0 ? fmt::format(" of {}", meta_.count) : ""));
  if (auto all = find_records(*txn); !all) return all;
  return read_tables(*txn);
}

Result<void> Store::find_records(const Txn& txn) {
  const auto refuse = [this](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}; pack it again", folder().string(), what));
  };
  if (meta_.count > std::min<std::uint64_t>(txn.entries(), file_bytes_))
    return refuse(fmt::format("holds {} records, fewer than its {} samples", txn.entries(), meta_.count));
  records_.reserve(meta_.count);
  bool sound = true;
  auto walked = txn.each([&](Bytes key, Bytes value) {
    if (key.size() != sizeof(IndexKey)) return true;
    const IndexKey wanted = index_key(records_.size());
    sound = records_.size() < meta_.count && std::equal(key.begin(), key.end(), wanted.begin()) &&
            env_.holds(value);
    if (sound) records_.push_back(value);
    return sound;
  });
  if (!walked) return walked;
  if (!sound || records_.size() != meta_.count)
    return refuse(fmt::format("sample {} of {} is missing, or one is there that does not belong to it",
                              records_.size(), meta_.count));
  return {};
}

Result<void> Store::read_tables(const Txn& txn) {
  const auto refuse = [this](std::string_view table) {
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("{}: its table `{}` is missing or damaged; pack it again", folder().string(), table));
  };
  const auto table = [&](std::string_view key, Bytes& out) -> Result<bool> {
    auto found = txn.get(bytes_of(key));
    if (!found) return fail(found.error());
    out = found->value_or(Bytes{});
    return out.size() == meta_.count * sizeof(std::uint64_t);
  };
  const auto is = [](Bytes bytes, std::uint64_t hash) {
    return XXH3_64bits(bytes.data(), bytes.size()) == hash;
  };
  if (meta_.labelled) {
    const auto whole = table(kLabelsKey, labels_);
    if (!whole) return fail(whole.error());
    if (!*whole || !is(labels_, meta_.labels_hash)) return refuse(kLabelsKey);
    for (std::uint64_t i = 0; i < size() && !meta_.classes.empty(); ++i)
      if (entry(labels_, i) >= meta_.classes.size()) return refuse(kLabelsKey);
  }
  if (meta_.wholes) {
    const auto whole = table(kWholesKey, wholes_);
    if (!whole) return fail(whole.error());
    if (!*whole || !is(wholes_, meta_.wholes_hash)) return refuse(kWholesKey);
  }
  lengths_.resize(meta_.fields.size());
  for (std::size_t f = 0; f < meta_.fields.size(); ++f) {
    if (meta_.fields[f].content != sample::Content::kRagged) continue;
    const auto whole = table(lengths_key(f), lengths_[f]);
    if (!whole) return fail(whole.error());
    if (!*whole) return refuse(lengths_key(f));
  }
  return {};
}

Result<RecordView> Store::record(std::uint64_t index, Extent extent) const {
  constexpr std::size_t kHeads = 1024;
  const Bytes value = records_[index];
  populate(extent == Extent::kWhole ? value : value.first(std::min(value.size(), kHeads)));
  auto view = RecordView::of(value, index, meta_.fields.size());
  if (!view) {
    const auto lost = fault();
    return fail(lost ? *lost : damaged(index, view.error()));
  }
  return *view;
}

Error Store::damaged(std::uint64_t index, const char* what) const {
  return {
      ErrorCode::kDatasetInvalid,
      fmt::format("{}: the record of sample {} is damaged: {}; `headrace verify {}` finds all such; pack it "
                  "again",
                  folder().string(), index, what, folder().string())};
}

std::int64_t Store::label(std::uint64_t index) const {
  return labels_.empty() ? 0 : static_cast<std::int64_t>(entry(labels_, index));
}

std::uint64_t Store::whole_index(std::uint64_t index) const {
  return wholes_.empty() ? index : entry(wholes_, index);
}

std::uint64_t Store::most_values(std::size_t field, std::uint64_t rows) const {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < std::min(rows, size()) && !lengths_[field].empty(); ++i)
    sum += entry(lengths_[field], i);
  return std::max<std::uint64_t>(sum, 1);
}

}  // namespace headrace::server::store
