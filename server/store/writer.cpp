#include "server/store/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "clientlib/base/human.h"
#include "clientlib/base/trusted_path.h"
#include "server/sample/labels.h"
#include "server/store/record.h"
#include "server/store/store.h"

namespace headrace::server::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownUndecodable = 10;
/// LMDB keeps a value's size in 32 bits, and tables have 8 bytes per sample.
constexpr std::uint64_t kMostSamples = 0xFFFFFFFF / sizeof(std::uint64_t);

Bytes bytes_of(const std::vector<std::uint64_t>& table) {
  return {reinterpret_cast<const std::uint8_t*>(table.data()), table.size() * sizeof(std::uint64_t)};
}

std::uint64_t hash_of(const std::vector<std::uint64_t>& table) {
  return XXH3_64bits(table.data(), table.size() * sizeof(std::uint64_t));
}

/// Opens the database's file and locks it for this process.
Result<ring::UniqueFd> take(const fs::path& folder) {
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    return fail(code, fmt::format("{}: {}", folder.string(), why));
  };
  std::error_code status;
  if (fs::exists(folder, status) && !fs::is_directory(folder, status))
    return refuse(ErrorCode::kInvalidArgument, "is a file; name a new folder");
  if (fs::is_directory(folder, status) && !fs::exists(folder / "data.mdb", status) &&
      !fs::is_empty(folder, status))
    return refuse(ErrorCode::kInvalidArgument, "holds other files; name a new folder");
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
    return refuse(ErrorCode::kEnvironment, fmt::format("cannot be made: {}", std::strerror(errno)));
  // LMDB opens the file again, by its name.
  const auto trusted = open_trusted_directory(folder.string());
  if (!trusted) return fail(trusted.error().code, trusted.error().message + "; name a new folder");
  auto fd = open_trusted_file(trusted->get(), "data.mdb", O_RDWR | O_CREAT, 0644);
  if (!fd) return refuse(fd.error().code, fd.error().message + "; name a new folder");
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0)
    return refuse(ErrorCode::kInvalidArgument,
                  errno == EWOULDBLOCK ? "another headrace pack writes it now"
                                       : fmt::format("cannot be locked: {}", std::strerror(errno)));
  return std::move(*fd);
}

}  // namespace

Result<Writer> Writer::open(const fs::path& folder, const Meta& meta, const WriterOptions& options) {
  if ((meta.count == 0 && !meta.streamed) || meta.count > kMostSamples)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} samples cannot be packed into one database; 1 to {} can", meta.count, kMostSamples));
  auto lock = take(folder);
  if (!lock) return fail(lock.error());
  auto env = Env::open(folder, Env::Access::kWrite, options.first_map_bytes);
  if (!env) return fail(env.error());
  Writer writer;
  writer.lock_ = std::move(*lock);
  writer.env_ = std::move(*env);
  writer.meta_ = meta;
  writer.meta_.complete = false;
  if (meta.streamed) writer.meta_.sizes.assign(meta.fields.size(), {});
  writer.options_ = options;
  for (const sample::SourceField& field : meta.fields)
    if (field.content == sample::Content::kRagged) writer.lengths_.emplace_back();
  if (writer.env_.entries() > 0) {
    if (auto resumed = writer.resume(); !resumed) return fail(resumed.error());
  } else if (auto begun = writer.transact([&](Txn& txn) {
               return txn.put(store::bytes_of(kPackingKey), store::bytes_of(writer.meta_.to_json()));
             });
             !begun) {
    return fail(begun.error());
  }
  return writer;
}

Result<void> Writer::resume() {
  auto found = inspect(env_);
  if (!found)
    return fail(ErrorCode::kInvalidArgument, found.error().message + "; remove it or choose another name");
  if (const std::string difference = found->meta.difference(meta_); !difference.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} holds another packing: {}; remove it or choose another name",
                            env_.folder().string(), difference));
  meta_.complete = found->meta.complete;
  meta_.content_hash = found->meta.content_hash;
  meta_.sizes = std::move(found->meta.sizes);
  meta_.raw_bytes = found->meta.raw_bytes;
  meta_.undecodable = found->meta.undecodable;
  meta_.first_undecodable = std::move(found->meta.first_undecodable);
  committed_ = found->packed;
  if (meta_.complete) return {};
  const auto txn = Txn::begin(env_, false);
  if (!txn) return fail(txn.error());
  const auto last = txn->last_key();
  if (!last) return fail(last.error());
  const IndexKey wanted = index_key(committed_ - 1);
  if (committed_ > 0 && !std::equal(wanted.begin(), wanted.end(), (*last)->begin(), (*last)->end()))
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: samples are missing among the {} that are there; remove it, and pack again",
                            env_.folder().string(), committed_));
  return lengths_.empty() && !(meta_.streamed && meta_.labelled) ? Result<void>() : recount();
}

Result<void> Writer::recount() {
  const auto txn = Txn::begin(env_, false);
  if (!txn) return fail(txn.error());
  std::uint64_t index = 0;
  const char* wrong = nullptr;
  auto walked = txn->each([&](Bytes key, Bytes value) {
    if (key.size() != sizeof(IndexKey)) return true;
    const auto record = RecordView::of(value, index++, meta_.fields.size());
    if (!record) {
      wrong = record.error();
      return false;
    }
    const std::int64_t label = record->head().label;
    if (meta_.labelled && (label < 0 || label >= sample::label_limit(meta_.classes))) {
      wrong = "its label is out of range";
      return false;
    }
    if (meta_.streamed) labels_.push_back(static_cast<std::uint64_t>(label));
    std::size_t ragged = 0;
    for (std::size_t f = 0; f < meta_.fields.size(); ++f) {
      const sample::SourceField& field = meta_.fields[f];
      if (field.content != sample::Content::kRagged) continue;
      lengths_[ragged++].push_back(record->field(f).bytes / value_bytes(field));
    }
    return true;
  });
  if (!walked) return walked;
  if (wrong != nullptr)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: the record of sample {} is damaged: {}; remove it, and pack again",
                            env_.folder().string(), index - 1, wrong));
  return {};
}

std::uint64_t Writer::file_bytes() const {
  std::error_code status;
  const auto bytes = fs::file_size(env_.folder() / "data.mdb", status);
  return status ? 0 : bytes;
}

Error Writer::cannot_write(int code) const {
  std::error_code status;
  const auto space = fs::space(env_.folder(), status);
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const std::uint64_t room = std::min<std::uint64_t>(
      space.available, limit.rlim_cur - std::min(limit.rlim_cur, rlim_t{file_bytes()}));
  // LMDB reports a short write as EIO.
  const bool full = code == ENOSPC || code == EDQUOT || code == EFBIG ||
                    (code == EIO && room < pending_bytes_ + options_.transaction_bytes);
  if (!full) return lmdb_error(code, env_.folder(), "written");
  const double per_sample =
      static_cast<double>(file_bytes()) / static_cast<double>(std::max<std::uint64_t>(committed_, 1));
  const double needed = committed_ > 0 && meta_.count > 0
                            ? per_sample * static_cast<double>(meta_.count - committed_)
                            : static_cast<double>(pending_bytes_);
  return {ErrorCode::kEnvironment,
          fmt::format("{}: no room to write on: {} are free{}, {} {} more are needed; {}{} "
                      "samples are kept: make room, then run the same headrace pack again",
                      env_.folder().string(), human_bytes(room),
                      code == EFBIG ? " below the limit of file sizes (ulimit -f)" : "",
                      meta_.count > 0 ? "about" : "at least", human_bytes(static_cast<std::uint64_t>(needed)),
                      committed_, meta_.count > 0 ? fmt::format(" of {}", meta_.count) : "")};
}

template <class Put>
Result<void> Writer::transact(Put put) {
  for (;;) {
    auto txn = Txn::begin(env_, true);
    if (!txn) return fail(txn.error());
    int code = put(*txn);
    if (code == MDB_SUCCESS) code = txn->commit();
    if (code == MDB_SUCCESS) return {};
    if (code != MDB_MAP_FULL) return fail(cannot_write(code));
    txn = fail(ErrorCode::kInternal, "ended");  // a map is resized between transactions
    if (auto grown = env_.resize_map(2 * env_.map_bytes()); !grown) return grown;
  }
}

Result<void> Writer::append(std::vector<std::uint8_t> record, const RecordFacts& facts) {
  if (next() == kMostSamples)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} samples are the most that one database holds: pack the others into another one",
                    env_.folder().string(), kMostSamples));
  if (pending_.empty()) since_ = Clock::now();
  pending_bytes_ += record.size();
  pending_.push_back(std::move(record));
  meta_.raw_bytes += facts.raw_bytes;
  if (!facts.undecodable.empty()) {
    ++meta_.undecodable;
    if (meta_.first_undecodable.size() < kShownUndecodable)
      meta_.first_undecodable.push_back(facts.undecodable);
  }
  for (std::size_t i = 0; i < lengths_.size(); ++i) lengths_[i].push_back(facts.lengths.at(i));
  if (meta_.streamed) note(facts);
  if (pending_bytes_ < options_.transaction_bytes && Clock::now() - since_ < options_.transaction_time)
    return {};
  return commit();
}

void Writer::note(const RecordFacts& facts) {
  labels_.push_back(static_cast<std::uint64_t>(facts.label));
  meta_.content_hash =
      XXH3_64bits_withSeed(&facts.content_hash, sizeof facts.content_hash, meta_.content_hash);
  for (std::size_t f = 0; f < facts.sizes.size(); ++f) {
    decode::ImageSize& all = meta_.sizes[f];
    const decode::ImageSize& one = facts.sizes[f];
    if (one.width == 0 || (all.width != 0 && all != one)) {
      all = {-1, -1};
    } else {
      all = one;
    }
  }
}

Result<void> Writer::commit() {
  if (pending_.empty()) return {};
  auto done = transact([this](Txn& txn) {
    for (std::size_t i = 0; i < pending_.size(); ++i)
      if (const int code = txn.put(index_key(committed_ + i), pending_[i], MDB_APPEND)) return code;
    return txn.put(store::bytes_of(kPackingKey), store::bytes_of(meta_.to_json()));
  });
  if (!done) return done;
  committed_ += pending_.size();
  pending_.clear();
  pending_bytes_ = 0;
  return {};
}

void Writer::conclude(Meta& whole, std::vector<std::uint64_t>& labels) const {
  whole.count = committed_;
  if (whole.labelled) labels = labels_;
  if (whole.labelled && whole.classes.empty()) {
    const auto most = *std::max_element(labels_.begin(), labels_.end());
    for (std::uint64_t label = 0; label <= most; ++label) whole.classes.push_back(std::to_string(label));
  }
  for (std::size_t f = 0; f < whole.fields.size(); ++f)
    if (whole.sizes[f].width > 0) {
      whole.fields[f].height = whole.sizes[f].height;
      whole.fields[f].width = whole.sizes[f].width;
    }
}

Result<void> Writer::finish(const Tables& given) {
  if (auto done = commit(); !done) return done;
  if (committed_ == 0)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: there is no sample to pack", env_.folder().string()));
  Tables tables = given;
  Meta whole = meta_;
  whole.complete = true;
  if (whole.streamed) conclude(whole, tables.labels);
  whole.labels_hash = hash_of(tables.labels);
  whole.wholes_hash = hash_of(tables.wholes);
  whole.wholes = !tables.wholes.empty();
  for (auto& lengths : lengths_) std::sort(lengths.begin(), lengths.end(), std::greater<>());
  auto done = transact([&](Txn& txn) {
    int code =
        tables.labels.empty() ? MDB_SUCCESS : txn.put(store::bytes_of(kLabelsKey), bytes_of(tables.labels));
    if (code == MDB_SUCCESS && whole.wholes)
      code = txn.put(store::bytes_of(kWholesKey), bytes_of(tables.wholes));
    std::size_t ragged = 0;
    for (std::size_t f = 0; f < whole.fields.size(); ++f)
      if (code == MDB_SUCCESS && whole.fields[f].content == sample::Content::kRagged)
        code = txn.put(store::bytes_of(lengths_key(f)), bytes_of(lengths_[ragged++]));
    if (code == MDB_SUCCESS) code = txn.remove(store::bytes_of(kPackingKey));
    return code == MDB_SUCCESS ? txn.put(store::bytes_of(kMetaKey), store::bytes_of(whole.to_json())) : code;
  });
  if (done) meta_ = std::move(whole);
  return done;
}

}  // namespace headrace::server::store
