#include "server/source/files/mapped_file.h"

#include <fmt/format.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstring>

#include "server/remote/url.h"

namespace headrace::server::source {

namespace bip = boost::interprocess;

namespace {

struct Mapping {
  explicit Mapping(const std::filesystem::path& path)
      : file(path.c_str(), bip::read_only),
        region(file, bip::read_only),
        watch({static_cast<const std::uint8_t*>(region.get_address()), region.get_size()},
              file.get_mapping_handle().handle, path.string()) {}

  bip::file_mapping file;
  bip::mapped_region region;
  mapped::WatchedMap watch;
};

}  // namespace

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
  if (kind != std::filesystem::file_type::regular) return refuse("is not a regular file; name the file");
  if (std::filesystem::file_size(path, status) == 0) return refuse("is empty; fetch it again");
  try {
    auto mapping = std::make_shared<const Mapping>(path);
    std::shared_ptr<const mapped::WatchedMap> map(mapping, &mapping->watch);
    return MappedBytes{map->bytes(), std::move(mapping), std::move(map)};
  } catch (const bip::interprocess_exception& error) {
    return refuse(fmt::format("cannot be mapped: {}; give this user the right to read it", error.what()));
  }
}

}  // namespace headrace::server::source
