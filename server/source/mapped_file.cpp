#include "server/source/mapped_file.h"

#include <fmt/format.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>

#include "server/remote/url.h"

namespace headrace::server::source {

namespace bip = boost::interprocess;

Result<MappedBytes> map_file(const std::filesystem::path& path, const RemotePtr& remote) {
  const auto refuse = [&path](const std::string& what) {
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: {}", remote::shown(path.string()), what));
  };
  if (remote::is_url(path.string())) {
    auto fetched = fetch_whole(path.string(), remote);
    if (!fetched) return fail(std::move(fetched.error()));
    if (fetched->empty()) return refuse("is empty; fetch it again");
    auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(*fetched));
    const std::span<const std::uint8_t> view(*owner);
    return MappedBytes{view, std::move(owner)};
  }
  std::error_code status;
  const auto kind = std::filesystem::status(path, status).type();
  if (kind == std::filesystem::file_type::not_found)
    return refuse(fmt::format("{}; correct the source's path", std::strerror(ENOENT)));
  if (kind != std::filesystem::file_type::regular) return refuse("is no regular file; name the file");
  if (std::filesystem::file_size(path, status) == 0) return refuse("is empty; fetch it again");
  try {
    // The descriptor goes with this scope, the mapping stays.
    const bip::file_mapping file(path.c_str(), bip::read_only);
    auto region = std::make_shared<bip::mapped_region>(file, bip::read_only);
    const std::span view(static_cast<const std::uint8_t*>(region->get_address()), region->get_size());
    return MappedBytes{view, std::move(region)};
  } catch (const bip::interprocess_exception& error) {
    return refuse(fmt::format("cannot be mapped: {}; see that this user may read it", error.what()));
  }
}

}  // namespace headrace::server::source
