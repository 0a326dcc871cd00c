// The CUDA device over a fake runtime: the device of each call, the reuse of events, and errors about
// drivers. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clientlib/gpu/device/device.h"
#include "clientlib/gpu/rows/job.h"
#include "tests/unit/fake_cuda.h"

namespace headrace::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StreamHandle kDefaultStream = 0;  // of the device that is current

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    reset_fake_cuda();
    device_ = or_throw(open_cuda_device(1, 0));
  }
  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, CallsOnItsOwnDeviceAndLeavesTheThreadsAsItWas) {
  const Mark copied = or_throw(device_->record());
  or_throw(device_->hold_stream(kDefaultStream, copied));
  const Mark read = or_throw(device_->record_on(kDefaultStream));
  or_throw(device_->hold_copies(read));
  or_throw(device_->wait(copied));
  or_throw(device_->launch(RowJob()));
  or_throw(device_->prepare_rows());
  EXPECT_EQ(device_->blocks_at_once(RowJob()), 264);
  device_->synchronize();
  device_.reset();
  for (const char* call : {"cudaStreamWaitEvent", "cudaEventRecord", "cudaEventCreate", "cudaEventQuery",
                           "launch_rows", "prepare_row_kernels", "row_blocks_at_once",
                           "cudaStreamSynchronize", "cudaEventDestroy", "cudaStreamDestroy"})
    EXPECT_EQ(fake_cuda().device_of(call), 1) << call;
  EXPECT_EQ(current_device(), 0);
}

TEST_F(CudaDeviceTest, MakesNoContextOnAnotherDevice) {
  or_throw(device_->wait(or_throw(device_->record())));
  std::byte* const memory = or_throw(device_->allocate(100));
  or_throw(device_->copy(memory, memory, 100));
  device_->free(memory);
  device_.reset();
  EXPECT_THAT(fake_cuda().contexts, ElementsAre(1));
}

TEST_F(CudaDeviceTest, CallsNothingWhenItsDeviceCannotBeMadeCurrent) {
  const Mark copied = or_throw(device_->record());
  fake_cuda().calls.clear();
  fake_cuda().lost = true;
  std::byte memory{};
  EXPECT_FALSE(device_->pin({&memory, 1}));
  EXPECT_FALSE(device_->allocate(1));
  EXPECT_FALSE(device_->room());
  EXPECT_FALSE(device_->copy(&memory, &memory, 1));
  EXPECT_FALSE(device_->record());
  EXPECT_FALSE(device_->record_on(kDefaultStream));
  EXPECT_FALSE(device_->hold_stream(kDefaultStream, copied));
  EXPECT_FALSE(device_->wait(copied));
  EXPECT_FALSE(device_->prepare_rows());
  EXPECT_EQ(device_->blocks_at_once(RowJob()), 1);
  const auto refused = device_->launch(RowJob());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("device \"cuda:1\" cannot be made current"));
  device_->unpin({&memory, 1});
  device_->free(&memory);  // NOLINT(clang-analyzer-unix.Malloc): the device's, not malloc's
  device_->synchronize();
  device_.reset();
  for (const auto& call : fake_cuda().calls) ADD_FAILURE() << call.name << " on device " << call.device;
  EXPECT_EQ(fake_cuda().last_error, 0);
  EXPECT_EQ(current_device(), 0);
}

TEST_F(CudaDeviceTest, KeepsTheTrainersLastErrorWhenDestroyed) {
  constexpr int kTrainersError = 700;
  fake_cuda().last_error = kTrainersError;
  device_.reset();
  EXPECT_EQ(fake_cuda().last_error, kTrainersError);
}

TEST_F(CudaDeviceTest, ClearsItsOwnErrorsWhenDestroyed) {
  fake_cuda().fails = "cudaStreamSynchronize";
  device_.reset();
  EXPECT_EQ(fake_cuda().count("cudaStreamDestroy"), 1);
  EXPECT_EQ(fake_cuda().last_error, 0);
}

TEST_F(CudaDeviceTest, UsesItsEventsAgain) {
  for (int i = 0; i < 100; ++i) {
    const Mark copied = or_throw(device_->record());
    or_throw(device_->hold_stream(7, copied));
    or_throw(device_->wait(copied));
    device_->drop(or_throw(device_->record_on(7)));
  }
  EXPECT_LE(fake_cuda().events, 2);
  EXPECT_EQ(fake_cuda().count("cudaEventDestroy"), 0);
  device_.reset();
  EXPECT_EQ(fake_cuda().count("cudaEventDestroy"), fake_cuda().events);
}

TEST_F(CudaDeviceTest, AsksForAMomentBeforeItSleeps) {
  or_throw(device_->wait(or_throw(device_->record())));
  EXPECT_EQ(fake_cuda().count("cudaEventQuery"), 1);
  EXPECT_EQ(fake_cuda().count("cudaEventSynchronize"), 0) << "it had ended";
  fake_cuda().not_ready = 1'000'000'000;
  or_throw(device_->wait(or_throw(device_->record())));
  EXPECT_GE(fake_cuda().count("cudaEventQuery"), 3) << "a moment is longer than one query";
  EXPECT_EQ(fake_cuda().count("cudaEventSynchronize"), 1);
  EXPECT_EQ(fake_cuda().last_error, 0) << "early queries left no error behind";
}

TEST(CudaDevice, NamesTheDriverThatItNeeds) {
  reset_fake_cuda();
  fake_cuda().old_driver = true;
  fake_cuda().driver_version = 11040;
  const auto refused = open_cuda_device(0, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kEnvironment);
  EXPECT_THAT(refused.error().message, HasSubstr("which needs driver 5"));
  EXPECT_THAT(refused.error().message, HasSubstr("the installed driver supports CUDA 11.4"));
}

TEST(CudaDevice, SaysWhatToDoWithoutADriver) {
  reset_fake_cuda();
  fake_cuda().old_driver = true;  // as CUDA reports it
  fake_cuda().driver_version = 0;
  const auto refused = open_cuda_device(0, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("cannot be used (does nvidia-smi show it?"));
}

}  // namespace
}  // namespace headrace::gpu
