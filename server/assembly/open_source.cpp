#include "server/assembly/open_source.h"

#include <fmt/format.h>

#include <utility>

#include "clientlib/base/human.h"
#include "server/io/delayed.h"
#include "server/io/disk_cache.h"
#include "server/log/log.h"
#include "server/source/files/whole_file.h"

namespace headrace::server::assembly {
namespace {

using SourcePtr = std::shared_ptr<const source::Source>;

/// Adds what `io` configures for each read.
Result<SourcePtr> wrap(const std::string& name, const config::IoConfig& how, SourcePtr source,
                       Caches* caches) {
  if (how.delay.count() > 0) {
    log::warn("source `{}`: io.delay adds {} ms to each read, to simulate slow storage", name,
              how.delay.count());
    source = std::make_shared<io::Delayed>(std::move(source), how.delay);
  }
  if (how.disk_cache) {
    auto folder = io::CacheFolder::open(how.disk_cache->path, how.disk_cache->size);
    if (!folder) return fail(std::move(folder.error()));
    log::info("source `{}`: disk cache {}: {} of {} in use", name, how.disk_cache->path.string(),
              human_bytes((*folder)->used()), human_bytes(how.disk_cache->size));
    auto kept = std::make_shared<io::DiskCache>(std::move(source), std::shared_ptr(std::move(*folder)));
    if (caches != nullptr) caches->note(name, kept);
    source = std::move(kept);
  }
  return source;
}

}  // namespace

Result<source::RemotePtr> Sources::remote_of(const std::string& name) {
  const config::SourceConfig& config = configs_.at(name);
  if (!config.network) return nullptr;
  remote::Options options{
      .s3 = config.network->s3, .transfers = {.tls_ca = config.network->tls_ca}, .stop = stop_};
  if (config.io) options.connections = config.io->threads;
  auto remote = remote::Remote::make(std::move(options));
  if (remote) remotes_.push_back({name, *remote});
  return remote;
}

Result<SourcePtr> Sources::open(const std::string& name, const std::string& part) {
  if (const auto opened = open_.find(name); opened != open_.end()) return opened->second.at(part);
  if (const auto failed = failed_.find(name); failed != failed_.end()) return fail(failed->second);
  auto parts = open_first(name);
  if (!parts) return fail(failed_.emplace(name, std::move(parts.error())).first->second);
  return open_.emplace(name, std::move(*parts)).first->second.at(part);
}

Result<source::Parts> Sources::open_first(const std::string& name) {
  const config::SourceConfig& config = configs_.at(name);
  auto remote = remote_of(name);
  if (!remote) return fail(std::move(remote.error()));
  source::OpenContext context{name, {}, std::move(*remote)};
  for (const config::SourceRef& ref : config.made_of()) {
    if (configs_.at(ref.name).feed() != nullptr)
      return fail(ErrorCode::kConfigInvalid, fmt::format("source `{}` is a feed: its batches come in its own "
                                                         "order, so no other source can be made of it",
                                                         ref.text()));
    auto member = this->open(ref.name, ref.part);
    if (!member) return fail(member.error().code, "source `" + ref.text() + "`: " + member.error().message);
    context.members.push_back({ref.text(), std::move(*member)});
  }
  auto whole = config.type->open(config.options, context);
  if (!whole) return fail(std::move(whole.error()));
  if (config.io) {
    if (config.io->read_ahead > 0) pools_[name] = std::make_shared<io::ReadPool>(name, config.io->threads);
    if (whole = wrap(name, *config.io, *whole, caches_); !whole) return fail(std::move(whole.error()));
  }
  if (const std::string warning = (*whole)->warning(); !warning.empty())
    log::warn("source `{}`: {}", name, warning);
  if (caches_ != nullptr) whole = caches_->keep_encoded(name, std::move(*whole));
  if (!whole) return fail(std::move(whole.error()));
  source::Parts parts{{"", *whole}};
  if (config.split) {
    auto divided = source::split(*whole, *config.split);
    if (!divided) return fail(std::move(divided.error()));
    parts = std::move(*divided);
  }
  return parts;
}

Reads Sources::reads(const std::string& name) const {
  const config::SourceConfig& config = configs_.at(name);
  if (config.io) {
    const auto found = pools_.find(name);
    return {&*config.io, found == pools_.end() ? nullptr : found->second};
  }
  Reads most;
  for (const config::SourceRef& ref : config.made_of()) {
    auto of = reads(ref.name);
    const auto threads = [](const Reads& reads) { return reads.pool ? reads.config->threads : 0; };
    if (most.config == nullptr || threads(of) > threads(most)) most = std::move(of);
  }
  return most;
}

}  // namespace headrace::server::assembly
