// Batches from a dataset in GPU memory are the same as the server's, byte for byte, wherever a loop begins,
// seeks or resumes; with a real server and the CPU backend.
#include "tests/unit/resident_loader.h"
#include "clientlib/gpu/batch_source.h"

namespace headrace::gpu {
namespace {

TEST_F(ResidentLoaderTest, GivesTheServersBatchesOverEpochs) {
  for (const char* more : {"batch_size: 8", "batch_size: 7, last: drop", "batch_size: 9, last: pad, seed: 5",
                           "batch_size: 60", "batch_size: 8, shuffle: false"}) {
    serve(more);
    Stream stream = open();
    const auto loader = load();
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(loader->length(), stream.length());
      const auto made = rest_of(*loader), sent = rest_of(stream);
      ASSERT_EQ(made.size(), sent.size()) << more;
      for (std::size_t b = 0; b < made.size(); ++b) ASSERT_EQ(made[b], sent[b]) << more << ", batch " << b;
      EXPECT_EQ(loader->cursor(), stream.cursor());
    }
  }
}

TEST_F(ResidentLoaderTest, GivesTheServersRowsOfASetWithoutPictures) {
  for (const char* more : {"batch_size: 8", "batch_size: 8, shuffle: false"}) {
    server_.reset();
    server_.emplace(directory_, 50, 37, std::string(more) + ", residence: gpu");
    Stream stream = open();
    const auto loader = load();
    for (int epoch = 0; epoch < 2; ++epoch) ASSERT_EQ(rest_of(*loader), rest_of(stream));
  }
}

TEST_F(ResidentLoaderTest, TellsRowsOfAPartByTheirIndexInTheWhole) {
  server_.reset();
  const auto set = folder_.path() / "cifar";
  write_cifar(set, kPictures);
  server_.emplace(directory_,
                  "sources: { c: { type: cifar, path: " + set.string() +
                      ", split: { fractions: { a: 0.6, b: 0.4 }, seed: 3 } } }\nstreams: { train: "
                      "{ source: c, part: b, batch_size: 8, residence: gpu } }\n");
  Stream stream = open();
  const auto loader = load();
  ASSERT_EQ(rest_of(*loader), rest_of(stream));
}

TEST_F(ResidentLoaderTest, RanksDivideEachEpochAsTheServerDoes) {
  for (const char* last : {"short", "pad", "drop"}) {
    serve(std::string("batch_size: 4, delivery: shard, last: ") + last);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      const auto loader = load({.rank = rank, .world_size = 3});
      Stream stream = open({.group = "other", .rank = rank, .world_size = 3});
      EXPECT_EQ(loader->length(), stream.length());
      for (int epoch = 0; epoch < 2; ++epoch) ASSERT_EQ(rest_of(*loader), rest_of(stream)) << last << rank;
    }
  }
}

TEST_F(ResidentLoaderTest, SeeksAsAStreamDoes) {
  serve();
  Stream stream = open();
  const auto loader = load();
  const auto both = [&](auto change) {
    ASSERT_TRUE(change(stream));
    ASSERT_TRUE(change(*loader));
    EXPECT_EQ(loader->epoch(), stream.epoch());
    EXPECT_EQ(loader->begun(), stream.begun());
    EXPECT_EQ(loader->cursor(), stream.cursor());
    EXPECT_EQ(loader->length(), stream.length());
    ASSERT_EQ(seen(next(*loader)), seen(*stream.next().value()));
  };
  both([](auto& source) { return source.set_epoch(0); });
  both([](auto& source) { return source.next_epoch(); });
  both([](auto& source) { return source.next_epoch(); });
  both([](auto& source) { return source.set_epoch(2); });  // begun: starts again at its first batch
  both([](auto& source) { return source.set_epoch(9); });
  ASSERT_EQ(rest_of(*loader), rest_of(stream));
  both([](auto& source) { return source.next_epoch(); });  // not begun: it stays the next one
  ASSERT_EQ(rest_of(*loader), rest_of(stream));
  both([](auto& source) { return source.set_epoch(11); });
}

TEST_F(ResidentLoaderTest, ItsStateResumesAStreamAndAStreamsResumesIt) {
  serve("batch_size: 8, delivery: shard, ring: { data_access: read_write }");
  const auto loader = load();
  next(*loader);
  next(*loader);
  const State of_loader = loader->state();
  Stream stream = open({.group = "first", .state = of_loader});
  EXPECT_EQ(stream.cursor(), loader->cursor());
  EXPECT_EQ(State::from_json(of_loader.to_json()).value().to_json(), stream.state().to_json());
  const auto second = seen(*stream.next().value());
  EXPECT_EQ(seen(next(*loader)), second);
  const State of_stream = stream.state();
  // At another world size, too.
  for (const std::uint32_t world : {1U, 2U}) {
    stream =
        open({.group = "again" + std::to_string(world), .rank = 0, .world_size = world, .state = of_stream});
    const auto opened =
        load({.group = "other" + std::to_string(world), .rank = 0, .world_size = world, .state = of_stream});
    EXPECT_EQ(opened->cursor(), stream.cursor());
    EXPECT_EQ(opened->length(), stream.length());
    const auto expected = rest_of(stream);
    EXPECT_EQ(rest_of(*opened), expected);
    ASSERT_TRUE(opened->load_state(of_stream));
    EXPECT_EQ(rest_of(*opened), expected);
  }
}

TEST_F(ResidentLoaderTest, RanksThatDisagreeGetAnError) {
  serve("batch_size: 8, delivery: shard, ring: { data_access: read_write }");
  const auto loader = load({.rank = 0, .world_size = 2});
  rest_of(*loader);
  const auto taken =
      Client::connect({.address = directory_}).value().open({.stream = "train", .rank = 0, .world_size = 2});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kRankTaken);
  const auto other =
      Client::connect({.address = directory_}).value().open({.stream = "train", .rank = 1, .world_size = 3});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kGroupMismatch);
}

TEST_F(ResidentLoaderTest, AStateOfAnEpochsEndBeginsTheNext) {
  serve();
  const auto loader = load();
  rest_of(*loader);
  const State end = loader->state();
  EXPECT_EQ(end.cursor, (Cursor{1, 0, 0}));
  const auto expected = rest_of(*loader);
  ASSERT_TRUE(loader->load_state(end));
  EXPECT_EQ(rest_of(*loader), expected);
  State changed = end;
  changed.fingerprint.seed = "8";
  EXPECT_EQ(loader->load_state(changed).error().code, ErrorCode::kFingerprintMismatch);
}

TEST_F(ResidentLoaderTest, SendsNoRequestsAfterTheUpload) {
  serve();
  Stream stream = open();
  const auto sent = rest_of(stream);
  const auto loader = load();
  ASSERT_EQ(seen(next(*loader)), sent[0]);
  server_.reset();
  for (std::size_t b = 1; b < sent.size(); ++b) ASSERT_EQ(seen(next(*loader)), sent[b]);
  EXPECT_FALSE(loader->next().value());
  rest_of(*loader);
}

TEST_F(ResidentLoaderTest, ReportsTheProgressOfTheUpload) {
  serve();
  std::vector<std::uint64_t> told;
  DeviceLoaderOptions options;
  options.uploading = [&](std::uint64_t samples, std::uint64_t of) {
    told.push_back(samples);
    EXPECT_EQ(of, kPictures);
  };
  const auto loader = load({}, options);
  EXPECT_TRUE(told.empty());
  EXPECT_EQ(loader->ready(), 0U);
  next(*loader);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back(), kPictures);
  EXPECT_EQ(loader->ready(), 6U);
  const auto count = told.size();
  next(*loader);
  EXPECT_EQ(told.size(), count);
}

TEST_F(ResidentLoaderTest, BatchesOutliveTheLoaderAndAreTheLoopsOwn) {
  serve();
  Stream stream = open();
  const auto sent = rest_of(stream);
  auto loader = load({}, {.prefetch = 3});
  std::vector<DeviceBatch> kept;
  for (std::size_t b = 0; b < sent.size(); ++b) kept.push_back(next(*loader));
  loader.reset();
  for (std::size_t b = 0; b < sent.size(); ++b) {
    EXPECT_EQ(seen(kept[b]), sent[b]);
    std::memset(kept[b].field(0).data, 0, kept[b].field(0).bytes());
  }
}

TEST_F(ResidentLoaderTest, UsesTheCallersAllocator) {
  serve();
  Stream stream = open();
  const auto sent = rest_of(stream);
  std::size_t shift = 0, missing = 0;
  std::vector<std::size_t> sizes;
  DeviceLoaderOptions options;
  options.allocate = [&](std::size_t bytes) -> Result<DeviceBlock> {
    sizes.push_back(bytes);
    const std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(256, bytes + 256)),
                                            &std::free);
    return DeviceBlock{memory.get() + shift, bytes - missing, memory};
  };
  const auto loader = load({}, options);
  EXPECT_EQ(rest_of(*loader), sent);
  const std::size_t batch = sizes.back();  // 53 samples in batches of 8: six full ones together, and the rest
  EXPECT_EQ(sizes, (std::vector{6 * batch, batch}));
  missing = 1;
  const auto small = loader->next(20s);
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("expected " + std::to_string(6 * batch) + " or more"),
            std::string::npos)
      << small.error().message;
  missing = 0;
  shift = 8;
  const auto refused = loader->next(20s);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not aligned"), std::string::npos);
}

TEST_F(ResidentLoaderTest, ReusesABlockOnlyAfterTheReadersOfAllItsBatches) {
  serve();
  const auto loader = load();
  std::vector<DeviceBatch> batches;
  for (int i = 0; i < 6; ++i) batches.push_back(next(*loader));
  const std::byte* const block = batches.front().block().data;
  const Seen third = seen(batches[2]);
  // Others end in another thread and in another order; the second and third are still in use.
  std::thread([&] {
    batches.erase(batches.begin() + 3, batches.end());
    batches.erase(batches.begin());
  }).join();
  for (int i = 0; i < 30; ++i) {
    auto later = loader->next(20s).value();
    if (!later) continue;
    EXPECT_NE(later->block().data - static_cast<std::ptrdiff_t>(later->block().index * later->block().bytes),
              block);
  }
  EXPECT_EQ(seen(batches.back()), third);
}

TEST_F(ResidentLoaderTest, UnpinsTheRingWhenTheUploadHasEnded) {
  for (const char* more : {"batch_size: 8", "batch_size: 8, delivery: shard"}) {
    serve(more);
    std::unique_ptr<DeviceLoader> loader;
    std::uint64_t pinned = 0;
    DeviceLoaderOptions options;
    options.uploading = [&](std::uint64_t, std::uint64_t) {
      pinned = std::max(pinned, loader->stats().pinned_bytes);
    };
    loader = load({}, options);
    (void)next(*loader);
    EXPECT_GT(pinned, 0U) << more;
    EXPECT_EQ(loader->stats().pinned_bytes, 0U) << more;
  }
}

TEST_F(ResidentLoaderTest, RefusesASetThatDoesNotFitWithItsSizes) {
  serve();
  Script script;
  script.room = 100'000;
  DeviceLoaderOptions options;
  options.engine.device = "host";
  const auto refused = make_resident_batches(open(), std::make_shared<ScriptedDevice>(script), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotEnoughMemory);
  EXPECT_NE(
      refused.error().message.find("stream 'train': its dataset of 53 samples needs 163.3 KB on scripted"),
      std::string::npos)
      << refused.error().message;
}

TEST_F(ResidentLoaderTest, RefusesTheServersMemoryOfAGroup) {
  serve("batch_size: 8, delivery: shard, ring: { data_access: read_write }");
  const auto refused = try_load({.resume_from_server = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("resume from a saved state"), std::string::npos);
}

TEST_F(ResidentLoaderTest, CopiesBatchesIfConfigured) {
  serve();
  Stream stream = open();
  const auto loader = load({}, {.resident = false});
  ASSERT_EQ(rest_of(*loader), rest_of(stream));
  EXPECT_GT(loader->stats().direct_copies, 5U);
}

TEST_F(ResidentLoaderTest, GoesOnUploadingAfterAnInterrupt) {
  write_cifar(folder_.path() / "cifar", 1200);
  serve("batch_size: 64, ring: { data_access: read_write }");
  DeviceLoaderOptions options;
  std::uint64_t there = 0;
  options.uploading = [&](std::uint64_t samples, std::uint64_t) {
    EXPECT_GT(samples, there);
    there = samples;
  };
  const auto loader = load({}, options);
  // No time at all for a batch: some are there in time, some are not.
  Result<std::optional<DeviceBatch>> first = std::nullopt;
  ASSERT_TRUE(comes_true([&] {
    first = loader->next(0ms);
    EXPECT_TRUE(first || first.error().code == ErrorCode::kTimeout) << first.error().to_string();
    return first.has_value();
  }));
  Stream stream = open();
  EXPECT_EQ(seen(**first), seen(*stream.next().value()));
  EXPECT_EQ(rest_of(*loader), rest_of(stream));
}

TEST_F(ResidentLoaderTest, RefusesADatasetThatChangedSinceItWasOpened) {
  chain_ = "[resize: {size: [36, 36]}, random_crop: {size: 32}]";
  serve();
  auto loader = load();
  chain_ = "[resize: {size: [36, 36], interpolation: nearest}, random_crop: {size: 32}]";
  serve();
  const auto batch = loader->next(20s);
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().code, ErrorCode::kFingerprintMismatch);
  EXPECT_NE(
      batch.error().message.find("the transforms before the upload changed after the loader was opened"),
      std::string::npos)
      << batch.error().message;
}

TEST_F(ResidentLoaderTest, NamesASampleThatIsBad) {
  server_.reset();
  const auto set = folder_.path() / "photos" / "a";
  std::filesystem::create_directories(set);
  std::ofstream(set / "broken.png") << "no picture";
  server_.emplace(directory_, "sources: { c: { type: image_folder, path: " + set.parent_path().string() +
                                  " } }\nstreams: { train: { source: c, batch_size: 8, residence: gpu, "
                                  "max_bad: 1, transforms: [resize: { size: [8, 8] }] } }\n");
  const auto loader = load();
  const auto failed = loader->next(20s);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kStreamFailed) << failed.error().to_string();
  EXPECT_NE(failed.error().message.find("broken.png"), std::string::npos) << failed.error().message;
}

TEST_F(ResidentLoaderTest, MoreLoadersUploadAtOnceThanTheRingHasLanes) {
  serve("batch_size: 8, ring: { max_clients: 2, data_access: read_write }");
  Stream stream = open();
  const auto sent = rest_of(stream);
  std::vector<std::unique_ptr<DeviceLoader>> loaders;
  for (int i = 0; i < 6; ++i) loaders.push_back(load());
  std::vector<std::thread> threads;
  for (const auto& loader : loaders) threads.emplace_back([&] { EXPECT_EQ(rest_of(*loader), sent); });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace headrace::gpu
