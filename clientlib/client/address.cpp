#include "clientlib/client/address.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "clientlib/base/default_directory.h"
#include "clientlib/base/trusted_path.h"
#include "clientlib/wire/protocol.h"

namespace headrace::client {
namespace {

std::string default_address() {
  if (const char* address = std::getenv("HEADRACE_ADDRESS"); address != nullptr && *address != '\0')
    return address;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return default_directory(runtime != nullptr ? runtime : "");
}

Result<std::vector<std::uint32_t>> allowed_by_environment() {
  std::vector<std::uint32_t> uids;
  const char* value = std::getenv("HEADRACE_ALLOW_UIDS");
  std::string_view left = value != nullptr ? value : "";
  while (!left.empty()) {
    const std::string_view number = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), number.size() + 1));
    const char* end = number.data() + number.size();
    std::uint32_t uid = 0;
    if (const auto [stop, error] = std::from_chars(number.data(), end, uid);
        error != std::errc() || stop != end)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "HEADRACE_ALLOW_UIDS='{}': '{}' is not a user id; separate ids with commas, such as 1000,1001",
              value, number));
    uids.push_back(uid);
  }
  return uids;
}

Result<std::string> resolve_directory(std::string_view address) {
  std::string text = address.empty() ? default_address() : std::string(address);
  if (text.starts_with("ipc://")) text.erase(0, 6);
  if (text.find("://") != std::string::npos)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "address '{}' is not a directory: batches come through shared memory, so give the server's "
            "directory on this machine, or ipc://<directory>",
            text));
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(text, error).lexically_normal();
  if (error) return fail(ErrorCode::kInvalidArgument, fmt::format("address '{}': {}", text, error.message()));
  const std::size_t longest = (absolute / wire::kControlSocket).native().size();
  if (longest >= sizeof(sockaddr_un::sun_path))
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "address '{}': the socket path in it has {} bytes, expected at most {}; use a shorter directory",
            absolute.string(), longest, sizeof(sockaddr_un::sun_path) - 1));
  std::string directory = absolute.string();
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  return directory;
}

constexpr const char* kTrustRemedy =
    "; set HEADRACE_ADDRESS to your own server's directory; to trust another user's server, list its uid in "
    "HEADRACE_ALLOW_UIDS or `allow_uids`";

}  // namespace

Result<Address> resolve_address(std::string_view address, std::vector<std::uint32_t> allow_uids) {
  auto directory = resolve_directory(address);
  if (!directory) return fail(directory.error());
  const auto more = allowed_by_environment();
  if (!more) return fail(more.error());
  allow_uids.insert(allow_uids.end(), more->begin(), more->end());
  return Address{std::move(*directory), std::move(allow_uids)};
}

Result<void> check_directory(const Address& server) {
  const auto folder = open_trusted_directory(server.directory, server.allow_uids);
  // Other errors are found and reported when the client connects.
  if (folder || folder.error().code != ErrorCode::kPermissionDenied) return {};
  return fail(
      folder.error().code,
      fmt::format(
          "server directory {}; its owner must remove write access (chmod go-w); use the real path instead "
          "of a link; to trust another owner, list that uid in HEADRACE_ALLOW_UIDS or `allow_uids`; or set "
          "HEADRACE_ADDRESS to another server's directory",
          folder.error().message));
}

Result<Peer> check_server(int socket, const std::string& path, const Address& server) {
  auto peer = check_peer(socket, {server.allow_uids, {}});
  if (!peer) return not_trusted(path, peer.error().message);
  return peer;
}

tl::unexpected<Error> not_trusted(const std::string& path, const std::string& whose) {
  return fail(ErrorCode::kPermissionDenied,
              fmt::format("{}: the server is not trusted: {}{}", path, whose, kTrustRemedy));
}

}  // namespace headrace::client
