#include "headrace/error.h"

#include <array>

namespace headrace {
namespace {

constexpr std::array<std::string_view, 34> kNames = {
    "INTERNAL",          "CONFIG_INVALID",
    "INVALID_ARGUMENT",  "ENVIRONMENT",
    "NOT_ENOUGH_MEMORY", "DIRECTORY_IN_USE",
    "DATASET_INVALID",   "BAD_SAMPLE",
    "TRANSIENT_IO",      "TOO_MANY_BAD_SAMPLES",
    "STREAM_FAILED",     "SERVER_UNREACHABLE",
    "VERSION_MISMATCH",  "NO_SUCH_STREAM",
    "CLIENT_NAME_TAKEN", "RANK_TAKEN",
    "GROUP_MISMATCH",    "FINGERPRINT_MISMATCH",
    "RING_FULL",         "TOKEN_INVALID",
    "PERMISSION_DENIED", "ATTACH_LOCAL_ONLY",
    "BAD_MESSAGE",       "DRAINING",
    "TIMEOUT",           "SERVER_LOST",
    "LEASE_FENCED",      "FORKED",
    "ITERATOR_BUSY",     "CLOSED",
};
constexpr std::size_t kCount = static_cast<std::size_t>(ErrorCode::kClosed) + 1;
static_assert(kCount <= kNames.size() && !kNames[kCount - 1].empty() && kNames[kCount].empty());

}  // namespace

std::string_view name_of(ErrorCode code) {
  const auto i = static_cast<std::size_t>(code);
  return i < kCount ? kNames[i] : kNames[0];
}

ErrorCode error_code_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (kNames[i] == name) return static_cast<ErrorCode>(i);
  return ErrorCode::kInternal;
}

std::string Error::to_string() const {
  return std::string(name_of(code)) + ": " + message;
}

}  // namespace headrace
