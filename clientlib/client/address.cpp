#include "clientlib/client/address.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>

#include "clientlib/base/default_directory.h"
#include "clientlib/wire/protocol.h"

namespace headrace::client {
namespace {

std::string default_address() {
  if (const char* address = std::getenv("HEADRACE_ADDRESS"); address != nullptr && *address != '\0')
    return address;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return default_directory(runtime != nullptr ? runtime : "");
}

}  // namespace

Result<std::string> resolve_directory(std::string_view address) {
  std::string text = address.empty() ? default_address() : std::string(address);
  if (text.starts_with("ipc://")) text.erase(0, 6);
  if (text.find("://") != std::string::npos)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "address '{}': batches come through shared memory, so give the server's directory on this "
            "machine, or ipc://<directory>",
            text));
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(text, error).lexically_normal();
  if (error) return fail(ErrorCode::kInvalidArgument, fmt::format("address '{}': {}", text, error.message()));
  const std::size_t longest = (absolute / wire::kControlSocket).native().size();
  if (longest >= sizeof(sockaddr_un::sun_path))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "address '{}': a socket path in it has {} bytes, the system allows {}: use a shorter directory",
            absolute.string(), longest, sizeof(sockaddr_un::sun_path) - 1));
  std::string directory = absolute.string();
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  return directory;
}

}  // namespace headrace::client
