// Errors as values: every failure has a name that is the same in C++, on the wire and in Python.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace headrace {

/// One enumeration for the whole project, because an error that starts in the server crosses the wire and
/// ends as a Python exception, under the same name. `name_of` gives the name in UPPER_SNAKE_CASE.
enum class ErrorCode : std::uint16_t {
  kInternal = 0,  ///< a broken invariant that could be reported instead of aborting
  // User input.
  kConfigInvalid,    ///< configuration (exit code 2)
  kInvalidArgument,  ///< a call's argument
  // The machine.
  kEnvironment,      ///< missing right, missing device, full disk (exit code 3)
  kNotEnoughMemory,  ///< the ring needs more memory than cgroup, rlimit or machine allow
  kDirectoryInUse,   ///< another server holds this directory
  // The data.
  kDatasetInvalid,  ///< e.g. a folder without classes, nothing readable, or a file that changed while in use
  kBadSample,       ///< content of one sample: corrupt, truncated, not an image, gigantic
  kTransientIo,     ///< an I/O error that persisted through retries; the sample is not replaced
  kTooManyBadSamples,  ///< more than `max_bad` of the stream's distinct samples are bad; the message names
                       ///< the first ten
  kStreamFailed,       ///< the stream stopped; the message carries the reason
  // Attaching.
  kServerUnreachable,    ///< no answer within the timeout; the message says which step failed
  kVersionMismatch,      ///< layout or protocol: both versions are named
  kNoSuchStream,         ///< the message lists the server's streams
  kClientNameTaken,      ///< another client of the stream has this name; the message names it
  kRankTaken,            ///< another client has this (group, rank); the message names it
  kGroupMismatch,        ///< world size or start cursor differ within a group; the message names both values
  kFingerprintMismatch,  ///< the dataset, plan, seed, algorithm version or batching differs from the
                         ///< checkpoint's; the message says which
  kRingFull,             ///< no free lane; the message says how many there are
  kTokenInvalid,         ///< attach token unknown, used or expired
  kPermissionDenied,     ///< one side does not trust the other side's user
  kAttachLocalOnly,      ///< reserved: nothing returns it
  kBadMessage,           ///< malformed or oversized control message
  kDraining,             ///< the server is shutting down
  // Iterating.
  kTimeout,       ///< a bounded wait ended; the message says what it waited for
  kServerLost,    ///< the server exited or is unreachable, and did not return within the reconnect time
  kLeaseFenced,   ///< this client was stuck past the eviction time; the next Stream::next() attaches again
  kForked,        ///< a forked child used its parent's client
  kIteratorBusy,  ///< a second iterator or a second thread uses a loader (Python)
  kClosed,        ///< the object was closed
};

std::string_view name_of(ErrorCode code);
/// Inverse of `name_of`; an unknown name (from a newer server) becomes kInternal.
ErrorCode error_code_from_name(std::string_view name);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< what, where, what to do; no trailing newline

  /// "NO_SUCH_STREAM: ..."
  [[nodiscard]] std::string to_string() const;
};

template <class T>
using Result = tl::expected<T, Error>;

/// What or_throw() throws; what() is "NO_SUCH_STREAM: ...".
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(error.to_string()), error_(std::move(error)) {}
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  Error error_;
};

/// For programs that use exceptions: returns the value, or throws an Exception with the error's message. (The
/// exception of tl::expected's value() has no message.)
template <class T>
T or_throw(Result<T> result) {
  if (!result) throw Exception(std::move(result).error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::make_unexpected(Error{code, std::move(message)});
}
inline tl::unexpected<Error> fail(Error error) {
  return tl::make_unexpected(std::move(error));
}

}  // namespace headrace
