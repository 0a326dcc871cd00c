// Records that another program writes into the pipe of `headrace pack -`. Input: a byte that says how many
// bytes arrive at a time, then the records.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "clientlib/base/unique_fd.h"
#include "server/pack/record_input.h"
#include "tests/fuzz/sources.h"

namespace headrace::server::pack {
namespace {

/// What a run has read: the contents of its samples, and how it ended.
struct Outcome {
  std::vector<std::uint64_t> hashes;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

/// A descriptor whose reads return `bytes`, at most `step` at a time.
UniqueFd descriptor_of(fuzz::Bytes bytes, std::size_t step) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "a socket is made");
  UniqueFd out(ends[0]);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(step, bytes.size()))) {
    const auto sent = ::send(ends[1], bytes.data(), std::min(step, bytes.size()), MSG_DONTWAIT);
    require(sent > 0, "records are sent");
  }
  ::close(ends[1]);
  return out;
}

Outcome read_pipe(int in) {
  const UniqueFd out(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const std::atomic<bool> stop{false};
  const auto refused = [](Outcome outcome, const Error& error) {
    require(!error.message.empty(), "a refusal says why");
    require(error.code == ErrorCode::kBadMessage, "records are refused as malformed");
    outcome.error = error.message;
    return outcome;
  };
  const auto input = RecordInput::open(in, out.get(), stop);
  if (!input) return refused({}, input.error());
  const auto& meta = (*input)->meta();
  require(!meta.fields.empty() && (*input)->begin(0, false).has_value(), "records have fields");
  Outcome outcome;
  InputSample sample;
  for (;;) {
    const auto more = (*input)->read(outcome.hashes.size(), sample);
    if (!more) {
      const auto after = (*input)->read(outcome.hashes.size(), sample);
      require(after && !*after, "nothing is read after an error");
      return refused(std::move(outcome), more.error());
    }
    if (!*more) break;
    outcome.hashes.push_back(sample.content_hash.value());
    require(meta.count == 0 || outcome.hashes.size() <= meta.count, "no more samples come than announced");
    if (sample.bad.empty())
      for (std::size_t f = 0; f < meta.fields.size(); ++f)
        fuzz::read_item(meta.fields[f], sample.sample.item(f));
  }
  require(meta.count == 0 || outcome.hashes.size() == meta.count, "as many samples come as announced");
  return outcome;
}

}  // namespace
}  // namespace headrace::server::pack

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace::server::pack;
  if (size == 0) return 0;
  const headrace::fuzz::Bytes records{data + 1, size - 1};
  constexpr std::size_t kWhole = 32'768;
  const Outcome whole = read_pipe(descriptor_of(records, kWhole).get());
  const Outcome parts = read_pipe(descriptor_of(records, 16 + data[0]).get());
  headrace::require(whole == parts, "it does not matter how many bytes arrive at a time");
  return 0;
}
