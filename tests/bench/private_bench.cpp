// Measures the cost of a private batch for its trainer: a copy of the slot into a reused buffer, against a
// copy-on-write view of it (clientlib/ring/private_pages.h).
//   private_bench [rounds]
// Both run in turn, for several sizes; CPU time. `copy`: the copy. `look`: the check for written pages, which
// is the whole cost of a view if the loop only reads. `faults`: a read-only view costs two of these instead,
// as long as the process has no page fault. `view+w`: a view whose loop writes to 1 page in 64, in 16, in 4,
// and to all. `read`: a pass over the batch afterwards, over the copy (which is in the CPU cache) and over
// the slot.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clientlib/ring/private_pages.h"
#include "clientlib/ring/segment.h"

namespace {

using namespace headrace::ring;

constexpr std::size_t kSlots = 6;
constexpr std::array<std::size_t, 5> kSizes{64 << 10, 256 << 10, 1 << 20, 9'633'792, 38'535'168};
constexpr std::array<std::size_t, 4> kOnePageIn{64, 16, 4, 1};

double cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

template <class T>
T need(T result) {
  if (result) return result;
  fmt::print(stderr, "private_bench: this machine has no copy-on-write views, or no memory\n");
  std::exit(3);
}

class Bench {
 public:
  explicit Bench(std::size_t bytes)
      : bytes_(bytes),
        stride_((bytes + page_size() - 1) / page_size() * page_size()),
        pages_(need(PrivatePages::open())),
        server_(need(Segment::create("bench", stride_ * kSlots, ClientAccess::kReadOnly))),
        shared_(map(Access::kReadOnly)),
        views_(map(Access::kCopyOnWrite)) {
    std::memset(server_->data(), 1, server_->size());
    for (std::vector<std::byte>& buffer : buffers_) buffer.resize(bytes_);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      read(shared_->data() + slot * stride_);
      read(views_->data() + slot * stride_);
    }
  }

  void round(std::size_t index) {
    const std::size_t slot = index % kSlots;
    const std::span<std::byte> view(views_->data() + slot * stride_, stride_);
    std::byte* copy = buffers_[index % 2].data();
    time("copy", [&] { std::memcpy(copy, shared_->data() + slot * stride_, bytes_); });
    time("read copy", [&] { read(copy); });
    const auto drop = [&] { own_ += pages_->drop(view, views_->fd(), slot * stride_); };
    time("faults", [&] { faults_ += PrivatePages::faults().value_or(0); });
    time("look", drop);
    time("read view", [&] { read(view.data()); });
    for (const std::size_t one_in : kOnePageIn)
      time(fmt::format("view+w 1/{}", one_in), [&] {
        for (std::size_t at = 0; at < bytes_; at += one_in * page_size()) view[at] = std::byte{2};
        drop();
        read(view.data());
      });
  }

  [[nodiscard]] double median(const std::string& what) {
    std::vector<double>& all = spent_[what];
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
  }

 private:
  [[nodiscard]] headrace::Result<Segment> map(Access access) const {
    return need(Segment::map(UniqueFd(::dup(server_->fd())), access, 1));
  }
  template <class F>
  void time(const std::string& what, F work) {
    const double start = cpu_us();
    work();
    spent_[what].push_back(cpu_us() - start);
  }
  /// One word of each cache line.
  void read(const std::byte* from) {
    std::uint64_t sum = 0;
    for (std::size_t at = 0; at + 8 <= bytes_; at += 64)
      sum += *reinterpret_cast<const std::uint64_t*>(from + at);
    sum_ = sum;
  }

  std::size_t bytes_, stride_;
  std::optional<PrivatePages> pages_;
  headrace::Result<Segment> server_, shared_, views_;
  std::array<std::vector<std::byte>, 2> buffers_;
  std::map<std::string, std::vector<double>> spent_;
  std::size_t own_ = 0;
  std::uint64_t faults_ = 0;
  volatile std::uint64_t sum_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 60;
  fmt::print("{:>12}{:>10}{:>11}{:>10}{:>10}{:>11}", "bytes", "copy", "read copy", "faults", "look",
             "read view");
  for (const std::size_t one_in : kOnePageIn) fmt::print("{:>14}", fmt::format("view+w 1/{}", one_in));
  fmt::print("   CPU us per batch\n");
  for (const std::size_t bytes : kSizes) {
    Bench bench(bytes);
    for (int i = 0; i < rounds; ++i) bench.round(static_cast<std::size_t>(i));
    fmt::print("{:>12}{:>10.1f}{:>11.1f}{:>10.1f}{:>10.1f}{:>11.1f}", bytes, bench.median("copy"),
               bench.median("read copy"), bench.median("faults"), bench.median("look"),
               bench.median("read view"));
    for (const std::size_t one_in : kOnePageIn)
      fmt::print("{:>14.1f}", bench.median(fmt::format("view+w 1/{}", one_in)));
    fmt::print("\n");
  }
}
