// Packed databases on disk: written, interrupted, resumed, opened, and refused with named errors.
#include "server/store/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <random>
#include <set>

#include "server/source/detect/detect.h"
#include "server/source/formats/lmdb.h"
#include "server/store/writer.h"
#include "tests/temp_folder.h"

namespace headrace::server::store {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Buffer = std::vector<std::uint8_t>;

Buffer content_of(std::uint64_t index, std::size_t size) {
  return Buffer(size, static_cast<std::uint8_t>(index * 7 + 1));
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    meta_.count = 100;
    meta_.fields = {source::SourceField{}};
    meta_.classes = {"cat", "dog"};
    meta_.source_fingerprint = 0x1234;
  }

  Result<Writer> open(const WriterOptions& options = {}) const { return Writer::open(out_, meta_, options); }

  /// Writes and commits samples up to `end`, each of the given size.
  static Result<void> write(Writer& writer, std::uint64_t end, std::size_t size = 1000) {
    Buffer scratch;
    while (writer.next() < end) {
      const std::uint64_t index = writer.next();
      const Buffer bytes = content_of(index, size);
      const RecordField field{bytes};
      Buffer record;
      encode({index, static_cast<std::int64_t>(index % 2), "s" + std::to_string(index), false, {&field, 1}},
             Compression::kNone, scratch, record);
      if (auto done = writer.append(std::move(record), {.raw_bytes = size}); !done) return done;
    }
    return writer.commit();
  }
  static Writer::Tables tables(std::uint64_t count) {
    Writer::Tables out;
    for (std::uint64_t i = 0; i < count; ++i) out.labels.push_back(i % 2);
    return out;
  }
  void write_whole(std::size_t size = 1000) const {
    auto writer = open();
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(write(*writer, meta_.count, size));
    ASSERT_TRUE(writer->finish(tables(meta_.count)));
  }
  std::string refusal() const {
    const auto store = Store::open(out_, Store::Reading::kRandom);
    return store ? "it was opened" : store.error().message;
  }
  /// Changes the database without the store's functions.
  void change(const std::function<int(Txn&)>& how) const {
    auto env = Env::open(out_, Env::Access::kWrite, std::uint64_t{1} << 24);
    ASSERT_TRUE(env) << env.error().message;
    auto txn = Txn::begin(*env, true);
    ASSERT_EQ(how(*txn), 0);
    ASSERT_EQ(txn->commit(), 0);
  }

  TempFolder folder_;
  fs::path out_ = folder_.path() / "train.lmdb";
  Meta meta_;
};

TEST_F(StoreTest, SamplesComeBackInPlace) {
  write_whole();
  const auto source = source::open_lmdb({out_, true});
  ASSERT_TRUE(source) << source.error().message;
  ASSERT_EQ((*source)->size(), 100u);
  EXPECT_EQ((*source)->fingerprint(), 0x1234u) << "encoded and not resized: the source's own";
  EXPECT_THAT((*source)->class_names(), testing::ElementsAre("cat", "dog"));
  source::Sample sample;
  std::set<const std::uint8_t*> places;
  for (const std::uint64_t index : {0u, 57u, 99u}) {
    ASSERT_TRUE((*source)->read(index, sample));
    EXPECT_THAT(sample.item(0).bytes, testing::ElementsAreArray(content_of(index, 1000)));
    EXPECT_TRUE(sample.item(0).storage.empty()) << "a span into the map, not a copy";
    EXPECT_EQ((*source)->label(index), static_cast<std::int64_t>(index % 2));
    EXPECT_EQ((*source)->name(index), "s" + std::to_string(index));
    EXPECT_EQ((*source)->whole_index(index), index);
  }
  EXPECT_FALSE(fs::exists(out_ / "lock.mdb"));
}

TEST_F(StoreTest, FieldsAreAlignedForAnyRecordSize) {
  for (const std::size_t size : {1u, 13u, 900u, 1999u, 2100u, 70'001u}) {
    fs::remove_all(out_);
    write_whole(size);
    const auto store = Store::open(out_, Store::Reading::kInOrder).value();
    for (std::uint64_t i = 0; i < store->size(); ++i)
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(store->value(i).data()) % 8, 0u) << size << " " << i;
  }
}

TEST_F(StoreTest, TheMapGrowsPastItsFirstSize) {
  auto writer =
      open({.transaction_bytes = std::uint64_t{3} << 20, .first_map_bytes = std::uint64_t{1} << 20});
  ASSERT_TRUE(writer) << writer.error().message;
  ASSERT_TRUE(write(*writer, 100, 200'000));
  ASSERT_TRUE(writer->finish(tables(100)));
  const auto store = Store::open(out_, Store::Reading::kInOrder);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_GT((*store)->file_bytes(), 20'000'000u);
  EXPECT_TRUE((*store)->record(99)->sound());
}

TEST_F(StoreTest, WhatIsNotFinishedIsNeverTakenForWhole) {
  {
    auto writer = open();
    ASSERT_TRUE(write(*writer, 40));
  }
  EXPECT_THAT(refusal(),
              HasSubstr("packing was not finished: 40 of 100 samples; run the same headrace pack again"));
  const auto found = inspect(out_);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->meta.complete);
  EXPECT_EQ(found->packed, 40u);
  EXPECT_THAT(source::propose(out_)->config, HasSubstr("type: lmdb"));

  auto writer = open();
  ASSERT_TRUE(writer) << writer.error().message;
  EXPECT_EQ(writer->next(), 40u);
  EXPECT_EQ(writer->meta().raw_bytes, 40'000u);
  ASSERT_TRUE(write(*writer, 100));
  ASSERT_TRUE(writer->finish(tables(100)));
  EXPECT_EQ(refusal(), "it was opened");
}

TEST_F(StoreTest, OnlyTheSamePackingGoesOn) {
  {
    auto writer = open();
    ASSERT_TRUE(write(*writer, 40));
  }
  meta_.options.compression = Compression::kLz4;
  meta_.source_fingerprint = 0x99;
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("holds another packing: source's fingerprint: expected 0000000000000099, found "));
  EXPECT_THAT(refused.error().message,
              HasSubstr("compression: expected lz4, found none; remove it or choose"));
}

TEST_F(StoreTest, AWholeOneIsLeftAlone) {
  write_whole();
  const auto again = open();
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->complete());
}

TEST_F(StoreTest, ASecondWriterIsRefused) {
  const auto first = open();
  const auto second = open();
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("another headrace pack writes it now"));
}

TEST_F(StoreTest, WhatIsNotOursIsNotTouched) {
  folder_.put("train.lmdb/holiday.jpg", "picture");
  EXPECT_THAT(open().error().message, HasSubstr("holds other files"));
  out_ = folder_.put("file", "x");
  EXPECT_THAT(open().error().message, HasSubstr("is a file"));
}

TEST_F(StoreTest, AForeignDatabaseIsNamed) {
  EXPECT_THAT(refusal(), HasSubstr("there is no such folder"));
  fs::create_directory(out_);
  EXPECT_THAT(refusal(), HasSubstr("there is no data.mdb in it; name a folder that `headrace pack` wrote"));
  change([](Txn& txn) { return txn.put(bytes_of("key"), bytes_of("value")); });
  EXPECT_THAT(refusal(), HasSubstr("this LMDB was not written by headrace pack"));
  EXPECT_THAT(open().error().message, HasSubstr("was not written by headrace pack"));
  change([](Txn& txn) { return txn.put(bytes_of(kMetaKey), bytes_of("{\"count\": 3}")); });
  EXPECT_THAT(refusal(), HasSubstr("was not written by headrace pack, or its meta record is damaged"));
  folder_.put("train.lmdb/data.mdb", std::string(20'000, 'x'));
  EXPECT_THAT(refusal(), HasSubstr("is not an LMDB database"));
}

TEST_F(StoreTest, MissingAndStraySamplesAreFound) {
  write_whole();
  change([](Txn& txn) { return txn.remove(index_key(7)); });
  EXPECT_THAT(refusal(), HasSubstr("sample 7 of 100 is missing"));
}

TEST_F(StoreTest, ADamagedTableIsFound) {
  write_whole();
  change([](Txn& txn) { return txn.put(bytes_of(kLabelsKey), Buffer(800, 1)); });
  EXPECT_THAT(refusal(), HasSubstr("its table `labels` is missing or damaged"));
}

TEST_F(StoreTest, ATruncatedFileIsFoundWhenItIsOpened) {
  write_whole();
  fs::resize_file(out_ / "data.mdb", fs::file_size(out_ / "data.mdb") / 2);
  EXPECT_THAT(refusal(), HasSubstr("is truncated: data.mdb has"));
}

TEST_F(StoreTest, AFileTruncatedWhileServedIsAnErrorAndNoBusError) {
  write_whole(200'000);
  const auto source = source::open_lmdb({out_}).value();
  source::Sample sample;
  ASSERT_TRUE(source->read(99, sample));
  fs::resize_file(out_ / "data.mdb", 16'384);
  const auto read = source->read(99, sample);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(read.error().message, HasSubstr("the file was truncated while in use"));
}

TEST_F(StoreTest, BytesBeyondTheMapAreNotInTheDatabase) {
  write_whole(100);
  const auto open_env = [&] { return Env::open(out_, Env::Access::kRandom).value(); };
  const std::uint64_t mapped = open_env().map_bytes();
  fs::resize_file(out_ / "data.mdb", mapped + (std::uint64_t{1} << 30));
  const Env env = open_env();
  ASSERT_EQ(env.map_bytes(), mapped);
  const Bytes key = *Txn::begin(env, false)->last_key().value();
  EXPECT_TRUE(env.holds(key));
  EXPECT_FALSE(env.holds({key.data(), mapped})) << "it reaches beyond the map, though not beyond the file";
}

TEST_F(StoreTest, DamageAnywhereInTheFileIsAnErrorAndNoCrash) {
  meta_.count = 400;
  write_whole(100);
  const fs::path file = out_ / "data.mdb";
  const auto size = fs::file_size(file);
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  std::mt19937 random(5);
  int refused = 0, opened = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    const std::size_t at = random() % size, length = std::min<std::size_t>(1 + random() % 64, size - at);
    for (std::size_t b = 0; b < length; ++b) damaged[at + b] = static_cast<char>(random());
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damaged;
    const auto source = source::open_lmdb({out_, true});
    source ? ++opened : ++refused;
    source::Sample sample;
    for (std::uint64_t s = 0; source && s < (*source)->size(); ++s) {
      const auto read = (*source)->read(s, sample);
      if (!read) continue;
      EXPECT_EQ(Buffer(sample.items[0].bytes.begin(), sample.items[0].bytes.end()), content_of(s, 100));
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(opened, 20) << "damage of records does not reach the tree";
}

TEST_F(StoreTest, AnImpossiblePageSizeIsDamage) {
  write_whole(100);
  constexpr std::streamoff kPageSize = 40;  // of the first page, in LMDB's format
  std::fstream file(out_ / "data.mdb", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kPageSize).write("\xde\xc0\xef\xbe", 4);
  file.close();
  const auto opened = source::open_lmdb({out_, true});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(opened.error().message, HasSubstr("its first pages are damaged"));
}

TEST_F(StoreTest, ADamagedRecordIsNamedWhenItIsRead) {
  write_whole();
  change([](Txn& txn) { return txn.put(index_key(3), Buffer(1096, 5)); });
  const auto source = source::open_lmdb({out_}).value();
  source::Sample sample;
  EXPECT_TRUE(source->read(2, sample));
  const auto read = source->read(3, sample);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::kDatasetInvalid);
  EXPECT_THAT(read.error().message, HasSubstr("the record of sample 3 is damaged: it is not a record"));
}

/// In a child, because the limit applies to a whole process.
TEST_F(StoreTest, AFullDiskIsNamedAndLosesNothingThatWasCommitted) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{5'000'000, 5'000'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = open({.transaction_bytes = 1'000'000});
    const auto written = write(*writer, 100, 100'000);
    const bool named = !written && written.error().code == ErrorCode::kEnvironment &&
                       written.error().message.find("no room to write on") != std::string::npos &&
                       written.error().message.find("MB more are needed") != std::string::npos;
    ::_exit(named && writer->committed() >= 20 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(refusal(), HasSubstr("packing was not finished"));
  auto writer = open();
  ASSERT_TRUE(writer) << writer.error().message;
  EXPECT_GE(writer->next(), 20u);
  ASSERT_TRUE(write(*writer, 100, 100'000));
  ASSERT_TRUE(writer->finish(tables(100)));
  const auto store = Store::open(out_, Store::Reading::kInOrder).value();
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_TRUE(store->record(i)->sound()) << i;
}

TEST_F(StoreTest, ReadOnlyMediaCanBeServed) {
  write_whole();
  fs::permissions(out_ / "data.mdb", fs::perms::owner_read);
  fs::permissions(out_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(refusal(), "it was opened");
}

}  // namespace
}  // namespace headrace::server::store
