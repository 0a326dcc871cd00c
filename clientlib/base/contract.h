// A broken contract aborts the process: it is a caller's mistake that no return value could report.
#pragma once

#include <string_view>

namespace headrace {

/// Prints "headrace: broken contract: <what>" to stderr and aborts.
[[noreturn]] void break_contract(std::string_view what);

inline void require(bool holds, std::string_view what) {
  if (!holds) [[unlikely]]
    break_contract(what);
}

}  // namespace headrace
