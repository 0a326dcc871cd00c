// Prints the attributes of a GPU. Measures, without Headrace, the time to register a memfd and the speed of
// copies from it, for 4 KB and 2 MB pages. Prints one line of JSON per figure, after "[figure] ".
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

namespace {

constexpr std::size_t kBytes = std::size_t{256} << 20, kCopy = std::size_t{32} << 20;
constexpr int kCopies = 64;

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "device_probe: %s failed: %s\n", doing, cudaGetErrorString(error));
  std::exit(1);
}

void figure(const nlohmann::json& line) {
  std::printf("[figure] %s\n", line.dump().c_str());
}

double milliseconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
}

void describe() {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::size_t free = 0, total = 0;
  int driver = 0, runtime = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  nlohmann::json line{{"figure", "device"},
                      {"name", device.name},
                      {"compute", device.major * 10 + device.minor},
                      {"multiprocessors", device.multiProcessorCount},
                      {"memory_mb", total >> 20},
                      {"free_mb", free >> 20},
                      {"driver_cuda", driver},
                      {"runtime_cuda", runtime}};
  const std::pair<const char*, cudaDeviceAttr> attributes[] = {
      {"HostRegisterSupported", cudaDevAttrHostRegisterSupported},
      {"HostRegisterReadOnlySupported", cudaDevAttrHostRegisterReadOnlySupported},
      {"CanUseHostPointerForRegisteredMem", cudaDevAttrCanUseHostPointerForRegisteredMem},
      {"PageableMemoryAccess", cudaDevAttrPageableMemoryAccess},
      {"AsyncEngineCount", cudaDevAttrAsyncEngineCount},
      {"MemoryBusWidth", cudaDevAttrGlobalMemoryBusWidth},
      {"MemoryClockKhz", cudaDevAttrMemoryClockRate},
  };
  for (const auto& [name, attribute] : attributes) {
    int value = -1;
    if (cudaDeviceGetAttribute(&value, attribute, 0) != cudaSuccess) (void)cudaGetLastError();
    line[name] = value;
  }
  figure(line);
}

/// GB/s of copies from `from`, all queued at once.
double rate(const std::byte* from) {
  void* to = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaMalloc(&to, kCopy), "cudaMalloc");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  double best = 1e9;
  for (int turn = 0; turn < 4; ++turn) {  // the first one warms up
    const auto begun = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < kCopies; ++i)
      check(cudaMemcpyAsync(to, from + i * kCopy % kBytes, kCopy, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    best = std::min(best, milliseconds_since(begun));
  }
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  check(cudaFree(to), "cudaFree");
  return static_cast<double>(kCopies * kCopy) / best / 1e6;
}

/// Measures a memfd. `flags`: for memfd_create; `huge`: request transparent huge pages.
void memfd(const char* pages, unsigned flags, bool huge, unsigned registered, const char* how) {
  const int fd = ::memfd_create("ring", MFD_CLOEXEC | flags);
  void* memory = MAP_FAILED;
  if (fd >= 0 && ::ftruncate(fd, kBytes) == 0)
    memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) ::close(fd);
  if (memory == MAP_FAILED) {
    std::printf("[not run] cannot map a memfd with pages of %s: %s\n", pages, std::strerror(errno));
    return;
  }
  if (huge) (void)::madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 0x5A, kBytes);
  const auto begun = std::chrono::steady_clock::now();
  const cudaError_t error = cudaHostRegister(memory, kBytes, registered);
  const double registering = milliseconds_since(begun);
  if (error == cudaSuccess) {
    const double gb_per_s = rate(static_cast<std::byte*>(memory));
    figure({{"figure", "registered memfd"},
            {"pages", pages},
            {"register", how},
            {"mb", kBytes >> 20},
            {"register_ms", registering},
            {"gb_per_s", gb_per_s}});
    check(cudaHostUnregister(memory), "cudaHostUnregister");
  } else {
    (void)cudaGetLastError();
    std::printf("[not run] cannot register a memfd %s, with pages of %s: %s\n", how, pages,
                cudaGetErrorString(error));
  }
  ::munmap(memory, kBytes);
}

/// Measures a memfd with pages of the huge page pool, in a child process: if a container limits pool pages,
/// the first access ends the process by SIGBUS. Call before the first CUDA call, because a CUDA context does
/// not survive fork(). Returns the program's exit status.
int pool_memfd() {
  constexpr unsigned k2Mb = 21U << 26;  // MFD_HUGE_2MB, whose header clashes with libc's
  const pid_t child = ::fork();
  if (child == 0) {
    memfd("2 MB, of the pool", MFD_HUGETLB | k2Mb, false, cudaHostRegisterDefault, "for writing");
    std::exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    std::printf(
        "[not run] cannot test a memfd with pages of 2 MB, of the pool: cannot run a child process: %s\n",
        std::strerror(errno));
  } else if (WIFSIGNALED(status)) {
    std::printf(
        "[not run] cannot use a memfd with pages of 2 MB, of the pool: the test was ended by signal %d "
        "(%s)\n",
        WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  } else {
    return WEXITSTATUS(status);
  }
  return 0;
}

}  // namespace

int main() {
  // Write each line at once: a program that is killed loses the lines in its buffer.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const int pool = pool_memfd();
  describe();
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, kBytes), "cudaMallocHost");
  std::memset(pinned, 0x5A, kBytes);
  figure({{"figure", "bare pinned copy"}, {"gb_per_s", rate(static_cast<std::byte*>(pinned))}});
  check(cudaFreeHost(pinned), "cudaFreeHost");
  memfd("4 KB", 0, false, cudaHostRegisterDefault, "for writing");
  memfd("4 KB", 0, false, cudaHostRegisterReadOnly, "read-only");
  memfd("2 MB, transparent if the kernel allows", 0, true, cudaHostRegisterDefault, "for writing");
  return pool;
}
