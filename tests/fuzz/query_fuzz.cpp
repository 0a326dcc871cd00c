// Queries of requests to the server's own HTTP port.
#include "server/metrics/http_query.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headrace;
  const std::vector<server::metrics::HttpParameter> known{{"stream", true}, {"index", false}};
  const auto found = server::metrics::parse_query(fuzz::text_of({data, size}), known);
  if (!found) {
    require(found.error().code == ErrorCode::kInvalidArgument && !found.error().message.empty(),
            "a query is refused as invalid, with a reason");
    return 0;
  }
  require(found->contains("stream") && found->size() <= known.size(), "only known parameters are found");
  for (const auto& [name, value] : *found) require(!value.empty(), "a parameter has a value");
  return 0;
}
