// The first bytes of a control connection: the verdict does not change with what follows.
#include "server/session/handshake.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  using namespace headrace::server::session;
  const auto bytes = fuzz::text_of({data, size});
  Handshake verdict = Handshake::kUnfinished;
  for (std::size_t n = 0; n <= std::min(size, kLongestHandshake + 16); ++n) {
    const Handshake now = classify_handshake(bytes.substr(0, n));
    require(verdict == Handshake::kUnfinished || now == verdict, "a verdict does not change");
    require(n < kLongestHandshake || now != Handshake::kUnfinished, "the longest handshake has a verdict");
    verdict = now;
  }
  require(classify_handshake(bytes) == verdict, "bytes after a handshake do not matter");
  return 0;
}
