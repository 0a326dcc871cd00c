#include "clientlib/base/contract.h"

#include <cstdio>
#include <cstdlib>

namespace headrace {

void break_contract(std::string_view what) {
  std::fprintf(stderr, "headrace: broken contract: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace headrace
