// Databases whose tree is endless, which change during the check, or whose check is interrupted.
#include "server/store/tree_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "server/mapped/watched_map.h"
#include "server/store/store.h"
#include "server/store/writer.h"
#include "tests/temp_folder.h"

#ifdef __SANITIZE_THREAD__
// tree_check.cpp checks a database in a forked child. A thread of the parent that ended before the fork and
// is joined after it counts as a leak of the child, whose exit status then is ThreadSanitizer's.
extern "C" [[gnu::visibility("default")]] const char*
__tsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "report_thread_leaks=0";
}
#endif

namespace headrace::server::store {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kTerabyte = std::uint64_t{1} << 40;

/// LMDB's file format (mdb.c), as far as a tree needs it.
struct PageHead {
  std::uint64_t number;
  std::uint16_t unused, flags, lower, upper;
};
struct Tree {
  std::uint32_t page_bytes;
  std::uint16_t flags, depth;
  std::uint64_t branches, leaves, overflows, entries, root;
};
struct MetaPage {
  PageHead head;
  std::uint32_t magic, version;
  std::uint64_t address, map_bytes;
  std::array<Tree, 2> trees;  ///< free pages, entries
  std::uint64_t last_page, transaction;
};
struct Node {
  std::uint16_t low, high, flags, key_bytes;
};

/// A leaf with one entry, and eight levels of branch pages, each of which names the page below a hundred
/// times: more entries than any walk can visit. The file has holes.
void write_endless(const fs::path& folder, std::uint64_t file_bytes, std::uint64_t entries,
                   std::uint64_t root = 10) {
  std::string file(11 * kPage, '\0');
  const auto put = [&file](std::size_t at, const auto& value) {
    std::memcpy(file.data() + at, &value, sizeof value);
  };
  for (std::uint16_t i = 0; i < 2; ++i) {
    MetaPage meta{.head = {i, 0, 0x08, 0, 0},
                  .magic = 0xBEEFC0DE,
                  .version = 1,
                  .address = 0,
                  .map_bytes = file_bytes,
                  .trees = {},
                  .last_page = 10,
                  .transaction = i};
    meta.trees[0] = {kPage, 0, 0, 0, 0, 0, 0, ~std::uint64_t{0}};
    meta.trees[1] = {0, 0, 9, 8, 1, 0, entries, root};
    put(i * kPage, meta);
  }
  for (std::uint16_t page = 2; page < 11; ++page) {
    const bool leaf = page == 2;
    const std::uint16_t count = leaf ? 1 : 100;
    const auto upper = static_cast<std::uint16_t>(kPage - count * sizeof(Node));
    put(page * kPage, PageHead{page, 0, static_cast<std::uint16_t>(leaf ? 2 : 1),
                               static_cast<std::uint16_t>(sizeof(PageHead) + 2 * count), upper});
    for (std::uint16_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::uint16_t>(upper + i * sizeof(Node));
      put(page * kPage + sizeof(PageHead) + 2 * i, at);
      put(page * kPage + at, Node{static_cast<std::uint16_t>(leaf ? 0 : page - 1), 0, 0, 0});
    }
  }
  fs::create_directories(folder);
  std::ofstream(folder / "data.mdb", std::ios::binary) << file;
  fs::resize_file(folder / "data.mdb", file_bytes);
}

/// The child process of a thread of this one.
pid_t await_child(pid_t thread) {
  for (pid_t child = 0;; std::this_thread::sleep_for(1ms))
    if (std::ifstream("/proc/self/task/" + std::to_string(thread) + "/children") >> child) return child;
}

class TreeCheck : public testing::Test {
 protected:
  void SetUp() override { ::alarm(60); }  // ends a check that hangs
  void TearDown() override { ::alarm(0); }
  /// Runs the check of an endless tree, while a thread calls `what`.
  template <class What>
  [[nodiscard]] Error error_after(const What& what) const {
    write_endless(out_, kTerabyte, kTerabyte / 8);
    std::jthread other([&what, checking = ::gettid()] { what(await_child(checking)); });
    const auto checked = check_tree(out_);
    return checked ? Error{} : checked.error();
  }

  TempFolder folder_;
  const fs::path out_ = folder_.path() / "train.lmdb";
};

TEST_F(TreeCheck, OfMoreEntriesThanTheFileHasRoomForEndsAsDamage) {
  write_endless(out_, 11 * kPage, kTerabyte / 8);
  const auto checked = check_tree(out_);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kDatasetInvalid);
}

TEST_F(TreeCheck, ThatIsKilledDoesNotCallTheDatabaseDamaged) {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
    const Error error = error_after([signal](pid_t child) {
      std::this_thread::sleep_for(50ms);  // until it is ready for signals
      ::kill(child, signal);
    });
    EXPECT_EQ(error.code, ErrorCode::kEnvironment) << error.message;
    EXPECT_THAT(error.message, HasSubstr("the check was killed by a signal"));
  }
}

TEST_F(TreeCheck, EndsWhenTheServerIsAskedToStop) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
  pid_t checking = 0;
  const Error error = error_after([&checking](pid_t child) {
    checking = child;
    ::kill(::getpid(), SIGTERM);
  });
  int taken = 0;
  ::sigwait(&set, &taken);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(error.code, ErrorCode::kEnvironment) << error.message;
  EXPECT_EQ(::kill(checking, 0), -1) << "the child is gone, too";
}

TEST_F(TreeCheck, OfADatabaseThatIsBeingPackedFindsNoDamage) {
  Meta meta;
  meta.count = 1'000'000;
  meta.fields = {sample::SourceField{}};
  const auto pack = [&](const WriterOptions& options, const std::function<bool(std::uint64_t)>& more) {
    auto writer = Writer::open(out_, meta, options).value();
    while (more(writer.next())) ASSERT_TRUE(writer.append(std::vector<std::uint8_t>(10), {.raw_bytes = 10}));
    ASSERT_TRUE(writer.commit());
  };
  pack({}, [](std::uint64_t next) { return next < 300'000; });  // walked in some 20 ms
  const std::jthread packing([&pack](const std::stop_token& stop) {
    pack({.transaction_time = 0ms}, [&stop](std::uint64_t) { return !stop.stop_requested(); });
  });
  const auto end = std::chrono::steady_clock::now() + 2s;
  while (std::chrono::steady_clock::now() < end) {
    const auto checked = check_tree(out_);
    ASSERT_TRUE(checked) << checked.error().message;
  }
}

TEST_F(TreeCheck, WhatLmdbAssertsIsAnErrorWhereThereIsNoCheck) {
  write_endless(out_, 11 * kPage, 1, 1);  // the root is a meta page
  const auto env = Env::open_unchecked(out_, Env::Access::kRandom);
  ASSERT_FALSE(env);
  EXPECT_EQ(env.error().code, ErrorCode::kDatasetInvalid);
}

/// As when the file is truncated while LMDB looks at a page: it would take zeros for a page with 2^31
/// entries.
TEST_F(TreeCheck, LmdbFindsNoEntriesInAPageThatIsLost) {
  fs::create_directory(out_);
  MDB_env* env = nullptr;
  ASSERT_EQ(::mdb_env_create(&env), MDB_SUCCESS);
  ASSERT_EQ(::mdb_env_open(env, out_.c_str(), MDB_NOTLS | MDB_NOLOCK, 0600), MDB_SUCCESS);
  MDB_txn* txn = nullptr;
  MDB_dbi dbi = 0;
  ASSERT_EQ(::mdb_txn_begin(env, nullptr, 0, &txn), MDB_SUCCESS);
  ASSERT_EQ(::mdb_dbi_open(txn, nullptr, 0, &dbi), MDB_SUCCESS);
  const auto bytes = [](std::string& of) { return MDB_val{of.size(), of.data()}; };
  std::string low = "a", high = "b";
  for (std::string* key : {&low, &high}) {
    MDB_val name = bytes(*key), value = bytes(*key);
    ASSERT_EQ(::mdb_put(txn, dbi, &name, &value, 0), MDB_SUCCESS);
  }
  ASSERT_EQ(::mdb_txn_commit(txn), MDB_SUCCESS);
  ASSERT_EQ(::mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn), MDB_SUCCESS);
  MDB_cursor* cursor = nullptr;
  ASSERT_EQ(::mdb_cursor_open(txn, dbi, &cursor), MDB_SUCCESS);
  MDB_val name = bytes(low), value{};
  ASSERT_EQ(::mdb_cursor_get(cursor, &name, &value, MDB_SET), MDB_SUCCESS);
  const mapped::UnwatchedFaults faults;
  fs::resize_file(out_ / "data.mdb", 0);
  name = bytes(high);
  EXPECT_EQ(::mdb_cursor_get(cursor, &name, &value, MDB_SET), MDB_NOTFOUND);
  EXPECT_TRUE(faults.any());
  ::mdb_cursor_close(cursor);
  ::mdb_txn_abort(txn);
  ::mdb_env_close(env);
}

TEST_F(TreeCheck, AFileTruncatedWhileItIsOpenedIsAnErrorAndNoCrash) {
  Meta meta;
  meta.count = 300;
  meta.fields = {sample::SourceField{}};
  {
    auto writer = Writer::open(out_, meta).value();
    for (int i = 0; i < 300; ++i)
      ASSERT_TRUE(writer.append(std::vector<std::uint8_t>(5000), {.raw_bytes = 1}));
    ASSERT_TRUE(writer.finish({.labels = std::vector<std::uint64_t>(300), .wholes = {}}));
  }
  const fs::path whole = folder_.path() / "whole.mdb";
  fs::copy_file(out_ / "data.mdb", whole);
  int opened = 0, refused = 0;
  for (int i = 0; i < 200; ++i) {
    fs::copy_file(whole, out_ / "data.mdb", fs::copy_options::overwrite_existing);
    const std::jthread cut([this, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(i * i));  // up to 40 ms: sanitizers are slow
      fs::resize_file(out_ / "data.mdb", i % 4 * kPage);
    });
    const auto store = Store::open(out_, Store::Reading::kRandom);
    store ? ++opened : ++refused;
    if (!store) {
      EXPECT_EQ(store.error().code, ErrorCode::kDatasetInvalid) << store.error().message;
    }
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace headrace::server::store
