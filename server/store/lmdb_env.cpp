#include "server/store/lmdb_env.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "server/store/tree_check.h"

namespace headrace::server::store {
namespace {

constexpr std::string_view kDamagedHead = "its first pages are damaged; copy or pack it again";

bool has_address_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

void populate(Bytes bytes) {
#ifdef MADV_POPULATE_READ
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto length = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size() - begin;
  auto* at = reinterpret_cast<void*>(begin);
  // The map is marked for random access; without this, the disk is read one page at a time.
  if (length > 4 * page) ::madvise(at, length, MADV_WILLNEED);
  ::madvise(at, length, MADV_POPULATE_READ);
#else
  static_cast<void>(bytes);
#endif
}

Error lmdb_error(int code, const std::filesystem::path& folder, std::string_view doing) {
  const auto say = [&](ErrorCode name, std::string_view what) {
    return Error{name, fmt::format("{}: cannot be {}: {}", folder.string(), doing, what)};
  };
  std::error_code ignored;
  switch (code) {
    case ENOENT:
      return say(ErrorCode::kDatasetInvalid,
                 std::filesystem::exists(folder, ignored)
                     ? "there is no data.mdb in it; name a folder that `headrace pack` wrote"
                     : "there is no such folder; correct the path");
    case MDB_INVALID:
      return say(ErrorCode::kDatasetInvalid, "its data.mdb is not an LMDB database; copy or pack it again");
    case MDB_VERSION_MISMATCH:
      return say(ErrorCode::kDatasetInvalid, "it was written by another version of LMDB");
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_CURSOR_FULL:  // a tree deeper than any
    case MDB_INCOMPATIBLE:
    case MDB_BAD_TXN:
    case MDB_PANIC:
      return say(ErrorCode::kDatasetInvalid, "its pages are damaged; pack it again");
    case EINVAL:  // LMDB maps as many bytes as its first pages say
      return say(ErrorCode::kDatasetInvalid, kDamagedHead);
    case EBADF:  // LMDB tries to write the first page
      return say(ErrorCode::kDatasetInvalid, "its data.mdb is empty; copy or pack it again");
    case ENOMEM:
      if (has_address_limit()) return say(ErrorCode::kEnvironment, "no room to map it: raise `ulimit -v`");
      return say(ErrorCode::kDatasetInvalid, kDamagedHead);  // no address space is that large
    case EACCES:
    case EPERM:
      return say(ErrorCode::kEnvironment, "permission denied; give this user the right to it");
    default:
      return say(ErrorCode::kEnvironment, ::mdb_strerror(code));
  }
}

namespace {

/// Returns the file's size. LMDB maps what its header says, even beyond the end of the file.
Result<std::uint64_t> check_length(MDB_env* env, const std::filesystem::path& folder) {
  MDB_envinfo info{};
  MDB_stat stat{};
  ::mdb_env_info(env, &info);
  ::mdb_env_stat(env, &stat);
  std::error_code status;
  const auto have = std::filesystem::file_size(folder / "data.mdb", status);
  if (status) return fail(lmdb_error(status.value(), folder, "examined"));
  std::uint64_t need = 0;
  if (__builtin_mul_overflow(std::uint64_t{info.me_last_pgno} + 1, std::uint64_t{stat.ms_psize}, &need) ||
      have < need)
    return fail(ErrorCode::kDatasetInvalid,
                fmt::format("{}: is truncated: data.mdb has {} bytes of {}; copy it again", folder.string(),
                            have, need));
  return have;
}

}  // namespace

Result<Env> Env::open(const std::filesystem::path& folder, Access access, std::uint64_t map_bytes) {
  if (std::error_code error; std::filesystem::exists(folder / "data.mdb", error))
    if (auto sound = check_tree(folder); !sound) return fail(sound.error());
  const mapped::UnwatchedFaults faults;
  auto env = open_unchecked(folder, access, map_bytes);
  if (env) env->watch();
  if (faults.any())
    return fail(
        ErrorCode::kDatasetInvalid,
        fmt::format("{}: data.mdb was truncated while it was opened; copy it again", folder.string()));
  return env;
}

Result<Env> Env::open_unchecked(const std::filesystem::path& folder, Access access, std::uint64_t map_bytes) {
  MDB_env* raw = nullptr;
  if (const int code = ::mdb_env_create(&raw)) return fail(lmdb_error(code, folder, "opened"));
  Env env;
  env.env_.reset(raw);
  env.folder_ = folder;
  if (map_bytes != 0) ::mdb_env_set_mapsize(raw, map_bytes);
  unsigned flags = MDB_NOTLS | MDB_NOLOCK;
  if (access != Access::kWrite) flags |= MDB_RDONLY;
  // A transaction that writes must not continue after a failed assertion.
  if (access != Access::kWrite) ::mdb_env_set_assert(raw, [](MDB_env*, const char*) { throw TreeFault(); });
  if (access == Access::kRandom) flags |= MDB_NORDAHEAD;
  constexpr mdb_mode_t kMode = 0644;
  if (const int code = ::mdb_env_open(raw, folder.c_str(), flags, kMode))
    return fail(lmdb_error(code, folder, "opened"));
  const auto bytes = check_length(raw, folder);
  if (!bytes) return fail(bytes.error());
  env.file_bytes_ = *bytes;
  if (access == Access::kWrite) return env;
  if (auto found = env.find_map(); !found) return fail(found.error());
  return env;
}

Result<void> Env::find_map() {
  const auto txn = Txn::begin(*this, false);
  if (!txn) return fail(txn.error());
  const auto key = txn->last_key();
  if (!key) return fail(key.error());
  if (*key) mapped_ = mapped::mapping_around((*key)->data());
  file_bytes_ = std::min<std::uint64_t>(file_bytes_, mapped_.size());  // a file can be longer than its map
  return {};
}

void Env::watch() {
  int fd = -1;
  if (mapped_.empty() || ::mdb_env_get_fd(env_.get(), &fd) != MDB_SUCCESS) return;
  map_ = std::make_unique<mapped::WatchedMap>(mapped_, fd, (folder_ / "data.mdb").string());
}

bool Env::holds(Bytes bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped_.data());
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
  return at >= begin && at - begin <= file_bytes_ && bytes.size() <= file_bytes_ - (at - begin);
}

Result<void> Env::resize_map(std::uint64_t bytes) {
  if (const int code = ::mdb_env_set_mapsize(env_.get(), bytes))
    return fail(lmdb_error(code, folder_, fmt::format("mapped with {} bytes", bytes)));
  return {};
}

std::uint64_t Env::map_bytes() const {
  MDB_envinfo info{};
  ::mdb_env_info(env_.get(), &info);
  return info.me_mapsize;
}

std::uint64_t Env::entries() const {
  MDB_stat stat{};
  ::mdb_env_stat(env_.get(), &stat);
  return stat.ms_entries;
}

Result<Txn> Txn::begin(const Env& env, bool write) {
  Txn txn;
  txn.folder_ = &env.folder();
  MDB_txn* raw = nullptr;
  if (const int code = ::mdb_txn_begin(env.get(), nullptr, write ? 0U : MDB_RDONLY, &raw))
    return fail(txn.error(code, write ? "written" : "read"));
  txn.txn_.reset(raw);
  if (const int code = ::mdb_dbi_open(raw, nullptr, 0, &txn.dbi_)) return fail(txn.error(code, "read"));
  return txn;
}

std::uint64_t Txn::entries() const {
  MDB_stat stat{};
  ::mdb_stat(txn_.get(), dbi_, &stat);
  return stat.ms_entries;
}

Result<std::optional<Bytes>> Txn::get(Bytes key) const {
  MDB_val wanted{key.size(), const_cast<std::uint8_t*>(key.data())};
  MDB_val value{};
  const int code = without_abort([&] { return ::mdb_get(txn_.get(), dbi_, &wanted, &value); });
  if (code == MDB_NOTFOUND) return std::nullopt;
  if (code != MDB_SUCCESS) return fail(error(code, "read"));
  return span(value);
}

int Txn::put(Bytes key, Bytes value, unsigned flags) {
  MDB_val name{key.size(), const_cast<std::uint8_t*>(key.data())};
  MDB_val content{value.size(), const_cast<std::uint8_t*>(value.data())};
  return ::mdb_put(txn_.get(), dbi_, &name, &content, flags);
}

int Txn::remove(Bytes key) {
  MDB_val name{key.size(), const_cast<std::uint8_t*>(key.data())};
  return ::mdb_del(txn_.get(), dbi_, &name, nullptr);
}

int Txn::commit() {
  return ::mdb_txn_commit(txn_.release());
}

Result<Txn::Cursor> Txn::cursor() const {
  MDB_cursor* raw = nullptr;
  if (const int code = ::mdb_cursor_open(txn_.get(), dbi_, &raw)) return fail(error(code, "read"));
  return Cursor(raw);
}

Result<std::optional<Bytes>> Txn::last_key() const {
  const auto at = cursor();
  if (!at) return fail(at.error());
  MDB_val key{}, value{};
  const int code = without_abort([&] { return ::mdb_cursor_get(at->get(), &key, &value, MDB_LAST); });
  if (code == MDB_NOTFOUND) return std::nullopt;
  if (code != MDB_SUCCESS) return fail(error(code, "read"));
  return span(key);
}

}  // namespace headrace::server::store
