// A hostile server: the client maps a control segment that an input patches, takes grants, and reads
// batches. Whatever it finds there, it reads only its mapping.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clientlib/client/lease.h"
#include "clientlib/ring/ring_reader.h"
#include "clientlib/ring/ring_writer.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/ring_harness.h"

namespace headrace::ring {
namespace {

using Memory = std::vector<std::uint8_t>;

/// The bytes of a valid ring's segments, with a granted batch.
struct Valid {
  Memory data, control, lease;
};

Memory content_of(int fd) {
  Memory out(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)));
  require(::pread(fd, out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()), "a segment is read");
  return out;
}

Valid make_valid() {
  const auto ring = testing::make_ring(2, 2);
  const auto fds = testing::descriptors_for(*ring, 0);
  testing::fill_and_publish(*ring, 0, 3, 7);
  testing::fill_and_publish(*ring, 1, 3, 8);
  ring->grant(0, 0, 1);
  ring->grant(0, 1, 1);
  return {content_of(fds.data.get()), content_of(fds.control.get()), content_of(fds.lease.get())};
}

UniqueFd sealed(const Memory& bytes) {
  UniqueFd fd(::memfd_create("ring", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  require(::pwrite(fd.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
              ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
          "a segment is made");
  return fd;
}

void require_within(std::span<const std::byte> memory, const void* at, std::size_t bytes, const char* what) {
  const auto* begin = static_cast<const std::byte*>(at);
  require(bytes == 0 || (begin >= memory.data() && bytes <= memory.size() &&
                         begin - memory.data() <= static_cast<std::ptrdiff_t>(memory.size() - bytes)),
          what);
}

void read_batch(const RingReader& reader, const Grant& grant, BatchView batch) {
  const std::span<const std::byte> slot = reader.memory(grant.slot);
  require(batch.rows() <= reader.row_capacity() && batch.valid_rows() <= batch.rows(), "a slot has its rows");
  require(batch.epoch() == grant.epoch && batch.batch() == grant.batch, "a batch is that of its grant");
  const auto rows = batch.all_rows();
  for (std::uint32_t i = 0; i < batch.rows(); ++i)
    require(batch.row(i).sample_index == rows[i].sample_index, "a row is that of its batch");
  require(!batch.field("a field that is not there"), "only fields of the batch are found");
  std::size_t f = 0;
  for (const FieldSpec& spec : batch.fields()) {
    const FieldView field = batch.field(spec.name).value();
    if (!batch.private_copy()) {
      require_within(slot, field.data, field.bytes(), "values are in their slot");
      require_within(slot, field.offsets.data(), field.offsets.size_bytes(), "offsets are in their slot");
    }
    fuzz::touch({reinterpret_cast<const std::uint8_t*>(field.data), field.bytes()});
    if (const auto typed = batch.values<float>(spec.name))
      require(spec.dtype == DType::kFloat32, "values have the type that is asked for");
    require(batch.keep(f++) != nullptr, "a field can be kept");
  }
  batch.release();
}

}  // namespace
}  // namespace headrace::ring

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::ring;
  static const Valid kValid = make_valid();
  Valid now = kValid;
  fuzz::Input input(data, size);
  const auto flags = input.take<std::uint8_t>();
  const auto data_patches = input.take_piece();
  fuzz::Input of_data(data_patches.data(), data_patches.size());
  fuzz::patch(of_data, now.data);
  fuzz::patch(input, now.control);
  RingReader::Descriptors fds{
      .data = sealed(now.data), .control = sealed(now.control), .lease = sealed(now.lease), .doorbell = {}};
  auto opened = RingReader::open(std::move(fds), flags % 2,
                                 flags & 2 ? RingReader::Slots::kPrivate : RingReader::Slots::kShared);
  if (!opened) {
    require(!opened.error().message.empty(), "a refusal says why");
    return 0;
  }
  const auto attachment = std::make_shared<client::Attachment>(UniqueFd(), std::move(*opened));
  RingReader& reader = *attachment->reader;
  require(reader.data().size() <= now.data.size(), "what may be pinned is mapped");
  (void)reader.ready(1);
  const auto pool = std::make_shared<client::BufferPool>(reader.fields().size());
  for (int i = 0; i < 4; ++i) {
    const auto grant = reader.next(1, std::chrono::nanoseconds(0), std::chrono::nanoseconds(0), nullptr);
    if (!grant) break;
    if (i % 2 == 0)
      read_batch(reader, *grant, BatchView(BatchView::Lease::on_slot(attachment, *grant, (flags & 2) != 0)));
    else
      read_batch(reader, *grant, BatchView(BatchView::Lease::copy_of(*attachment, *grant, pool)));
    reader.commit({grant->epoch, 0, grant->batch + 1});
  }
  // Waits, and is woken by itself.
  (void)reader.next(1, std::chrono::microseconds(10), std::chrono::microseconds(1), nullptr);
  reader.wake();
  if (flags & 4) reader.keep_viewed_only();
  return 0;
}
