#include "server/remote/remote.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <set>

#include "server/remote/content_range.h"

namespace headrace::server::remote {
namespace {

constexpr std::chrono::milliseconds kLongestPause{10'000};
/// An attempt that transferred this much is not counted.
constexpr std::uint64_t kProgress = std::uint64_t{1} << 20;

std::string tag_of(const Reply& reply) {
  return reply.etag.empty() ? reply.last_modified : reply.etag;
}

/// By the standard, weak ETags match nothing.
void expect_tag(Request& request, const std::string& tag) {
  if (tag.starts_with('"')) request.headers.push_back("If-Match: " + tag);
}

/// Varies the pause by up to a half, so that clients that met the same fault do not return together.
std::chrono::milliseconds jittered(std::chrono::milliseconds pause) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double factor = std::uniform_real_distribution<double>(0.5, 1.5)(random);
  return std::chrono::milliseconds(static_cast<std::int64_t>(static_cast<double>(pause.count()) * factor));
}

Error changed(const std::string& url, std::string_view how) {
  return {ErrorCode::kDatasetInvalid,
          fmt::format("{}: {} since the dataset was opened; objects must stay as they are while they are "
                      "served: restore it if it is needed, then restart the server",
                      shown(url), how)};
}

Error no_ranges(const std::string& url) {
  return {ErrorCode::kDatasetInvalid,
          fmt::format("{}: the server does not support range requests; serve it with one that does "
                      "(nginx, Apache, MinIO), or copy the files",
                      shown(url))};
}

}  // namespace

struct Remote::Fault {
  Error error;
  bool retryable = false;
  std::chrono::milliseconds not_before{0};
  bool progress = false;
};

Result<std::shared_ptr<const Remote>> Remote::make(Options options) {
  auto s3 = S3::from_environment(options.s3);
  if (!s3) return fail(std::move(s3.error()));
  const auto& ca = options.transfers.tls_ca;
  if (!ca.empty() && ::access(ca.c_str(), R_OK) != 0)
    return fail(ErrorCode::kConfigInvalid, fmt::format("tls_ca {}: {}; name a file of certificates (PEM)",
                                                       ca.string(), std::strerror(errno)));
  return std::shared_ptr<const Remote>(new Remote(std::move(options), std::move(*s3)));
}

Remote::Remote(Options options, S3 s3)
    : options_(std::move(options)), s3_(std::move(s3)), transfers_(options_.transfers, options_.stop) {}

Counts Remote::counts() const {
  return {requests_.load(), retries_.load(), bytes_.load()};
}

Result<Request> Remote::request(const std::string& url) const {
  if (!is_s3(url)) {
    auto sound = normalized(url);
    if (!sound) return fail(std::move(sound.error()));
    return Request{.url = std::move(*sound), .range = {}, .headers = {}, .region = {}};
  }
  S3Name name = s3_name(url);
  if (name.bucket.empty() || name.key.empty())
    return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: write it as s3://bucket/key", url));
  return s3_.object(name);
}

Reply Remote::get(const Request& request, const TakePart& take) const {
  requests_.fetch_add(1, std::memory_order_relaxed);
  return transfers_.get(request, [&](const Reply& head, std::span<const std::uint8_t> part) {
    bytes_.fetch_add(part.size(), std::memory_order_relaxed);
    return take(head, part);
  });
}

std::optional<Remote::Fault> Remote::fault_of(const Reply& reply, const std::string& url) const {
  const auto make_fault = [&url](std::string_view what) {
    return Fault{{ErrorCode::kDatasetInvalid, fmt::format("{}: {}", shown(url), what)}};
  };
  if (options_.stop.stop_requested())
    return Fault{{ErrorCode::kTransientIo, shown(url) + ": not read, because the server is stopping"}};
  if (reply.status < 300 || reply.permanent) {
    if (reply.failure.empty()) return std::nullopt;
    Fault fault = make_fault(reply.failure);
    fault.retryable = !reply.permanent;
    if (fault.retryable) fault.error.code = ErrorCode::kTransientIo;
    if (reply.permanent)
      fault.error.message += "; correct the URL, or for a certificate error name its authority in `tls_ca`";
    return fault;
  }
  const std::string code = is_s3(url) ? error_code_in(reply.error_body) : "";
  const std::string status =
      fmt::format("the server answers {}{}{}", reply.status, code.empty() ? "" : " ", code);
  switch (reply.status) {
    case 404:
    case 410:
      return make_fault(status + ": it is not there; correct the path");
    case 401:
    case 403: {
      if (!is_s3(url)) return make_fault(status + ": make it readable by everyone, or by the URL's user");
      const char* const remedy =
          s3_.has_keys()
              ? "see that the keys in the environment are right, may read it, and that the clock is set"
              : "requests are not signed: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, unless "
                "anybody may read it";
      return make_fault(fmt::format("{}; {}", status, remedy));
    }
    case 412:
      return Fault{changed(url, "it was changed")};
    case 408:
    case 425:
    case 429:
      break;
    default:
      if (reply.status >= 500) break;
      if (!reply.bucket_region.empty() && reply.bucket_region != s3_.region())
        return make_fault(fmt::format("{}; the bucket is in region {}: set `s3: {{region: {}}}`", status,
                                      reply.bucket_region, reply.bucket_region));
      return make_fault(status + "; correct the URL or the S3 endpoint");
  }
  Fault fault = make_fault(status);
  fault.error.code = ErrorCode::kTransientIo;
  fault.retryable = true;
  fault.not_before = reply.retry_after;
  return fault;
}

bool Remote::pause(std::chrono::milliseconds time) const {
  std::mutex mutex;
  std::condition_variable_any ends;
  std::unique_lock lock(mutex);
  ends.wait_for(lock, options_.stop, time, [] { return false; });
  return !options_.stop.stop_requested();
}

Result<void> Remote::with_retries(const std::function<std::optional<Fault>()>& attempt) const {
  auto wait = options_.backoff;
  int tries = 0;
  for (;;) {
    std::optional<Fault> fault = attempt();
    if (!fault) return {};
    if (!fault->retryable) return fail(std::move(fault->error));
    if (fault->progress) {
      tries = 0;
      wait = options_.backoff;
    }
    if (++tries >= options_.attempts) {
      fault->error.message += fmt::format(" (after {} attempts); check the server and the network", tries);
      return fail(std::move(fault->error));
    }
    retries_.fetch_add(1, std::memory_order_relaxed);
    if (!pause(std::min(std::max(jittered(wait), fault->not_before), kLongestPause))) {
      fault->error.message += "; not tried again, because the server is stopping";
      return fail(std::move(fault->error));
    }
    wait = std::min(2 * wait, kLongestPause);
  }
}

Result<Stat> Remote::stat(const std::string& url) const {
  auto found = find(url);
  if (!found) return fail(std::move(found.error()));
  if (*found) return std::move(**found);
  return fail(ErrorCode::kDatasetInvalid,
              fmt::format("{}: the server answers 404: it is not there; correct the path", shown(url)));
}

// Not by HEAD: a signed URL permits only one method, and a ranged GET shows whether ranges are supported.
Result<std::optional<Stat>> Remote::find(const std::string& url) const {
  auto first = request(url);
  if (!first) return fail(std::move(first.error()));
  first->range = {0, 0};
  std::optional<Stat> out;
  auto done = with_retries([&]() -> std::optional<Fault> {
    std::size_t came = 0;  // the range is one byte; reading it keeps the connection
    const Reply reply = get(*first, [&came](const Reply& head, std::span<const std::uint8_t> part) {
      came += part.size();
      return head.status == 206 && came <= 1;
    });
    if (reply.status == 404 || reply.status == 410) return std::nullopt;
    const auto range = parse_content_range(reply.content_range);
    if (reply.status == 416 && range && range->total == std::uint64_t{0}) {
      out = Stat{0, tag_of(reply), true};
      return std::nullopt;
    }
    if (auto fault = fault_of(reply, url)) return fault;
    const auto bytes = reply.status != 206 ? reply.length : range ? range->total : std::nullopt;
    if (!bytes)
      return Fault{{ErrorCode::kDatasetInvalid,
                    shown(url) + ": the server does not send its size; serve it as a file"}};
    out = Stat{*bytes, tag_of(reply), reply.status == 206};
    return std::nullopt;
  });
  if (!done) return fail(std::move(done.error()));
  return out;
}

Result<void> Remote::read(const std::string& url, const Stat& known, std::uint64_t offset,
                          std::span<std::uint8_t> out) const {
  if (out.empty()) return {};
  auto base = request(url);
  if (!base) return fail(std::move(base.error()));
  expect_tag(*base, known.tag);
  std::uint64_t done = 0, farthest = 0;
  return with_retries([&]() -> std::optional<Fault> {
    if (!known.tag.starts_with('"')) done = 0;  // the rest may belong to another version
    const std::uint64_t first = offset + done, before = done;
    base->range = {first, offset + out.size() - 1};
    std::optional<Error> misfit;
    const auto see = [&](const Reply& head) {
      const auto range = parse_content_range(head.content_range);
      const std::string tag = tag_of(head);
      if (head.status != 206 && !(first == 0 && out.size() == known.bytes && head.length == known.bytes))
        misfit = no_ranges(url);
      else if (head.status == 206 && (!range || range->first != first || range->last >= offset + out.size()))
        misfit =
            Error{ErrorCode::kDatasetInvalid,
                  fmt::format("{}: the server sent bytes {} instead of {}-{}; check the proxy in front of it",
                              shown(url), head.content_range, first, offset + out.size() - 1)};
      else if (range && range->total && *range->total != known.bytes)
        misfit =
            changed(url, fmt::format("it has {} bytes, had {}; it was changed", *range->total, known.bytes));
      else if (tag != known.tag)
        misfit = changed(url, "it was changed");
      return !misfit;
    };
    const Reply reply = get(*base, [&](const Reply& head, std::span<const std::uint8_t> part) {
      if (done == before && !see(head)) return false;
      if (part.size() > out.size() - done) return false;  // more than was requested
      std::copy(part.begin(), part.end(), out.begin() + static_cast<std::ptrdiff_t>(done));
      done += part.size();
      return true;
    });
    if (misfit) return Fault{std::move(*misfit)};
    if (done == out.size()) return std::nullopt;
    if (reply.status == 416) return Fault{changed(url, "it was truncated")};
    auto fault = fault_of(reply, url);
    if (!fault)
      fault = Fault{{ErrorCode::kTransientIo,
                     fmt::format("{}: the reply ended after {} of {} bytes", shown(url), done, out.size())},
                    true};
    fault->progress = done >= farthest + kProgress;
    farthest = std::max(farthest, done);
    return fault;
  });
}

Result<Stat> Remote::fetch(const std::string& url, std::uint64_t most, std::vector<std::uint8_t>& out) const {
  const auto base = request(url);
  if (!base) return fail(base.error());
  out.clear();
  Stat known;
  bool begun = false;
  std::uint64_t farthest = 0;  // offset that an attempt reached
  std::optional<std::uint64_t> whole;
  auto done = with_retries([&]() -> std::optional<Fault> {
    Request next = *base;
    if (begun && !out.empty() && known.tag.starts_with('"')) {  // else it may be another version by now
      next.range = {out.size(), whole ? *whole - 1 : most};
      expect_tag(next, known.tag);
    } else {
      out.clear();
      begun = false;
    }
    const std::uint64_t before = out.size();
    bool seen = false;
    std::optional<Error> misfit;
    const auto see = [&](const Reply& head) {
      seen = true;
      const auto range = parse_content_range(head.content_range);
      if (head.status != 206) {
        out.clear();
        begun = true;
        known.tag = tag_of(head);
        whole = head.length;
        if (!head.delimited)
          misfit = Error{ErrorCode::kDatasetInvalid,
                         shown(url) +
                             ": the server does not send its size, so truncation could not be detected; "
                             "serve it as a file"};
        if (whole && *whole <= most) out.reserve(*whole);  // growing would take twice as much for a moment
      } else if (!next.range || !range || range->first != before || tag_of(head) != known.tag) {
        misfit = changed(url, "it was changed");
      }
    };
    const Reply reply = get(next, [&](const Reply& head, std::span<const std::uint8_t> part) {
      if (!seen) see(head);
      if (out.size() + part.size() > most)
        misfit = Error{ErrorCode::kBadSample, fmt::format("{}: has {} bytes or more, the limit is {}",
                                                          shown(url), whole.value_or(most + 1), most)};
      if (misfit) return false;
      out.insert(out.end(), part.begin(), part.end());
      return true;
    });
    if (!seen && reply.status != 0 && reply.status < 300) see(reply);  // the reply was empty
    if (misfit) return Fault{std::move(*misfit)};
    if (seen && whole && out.size() == *whole) return std::nullopt;
    auto fault = fault_of(reply, url);
    if (!fault && whole && out.size() != *whole)
      fault = Fault{{ErrorCode::kTransientIo,
                     fmt::format("{}: the reply ended after {} of {} bytes", shown(url), out.size(), *whole)},
                    true};
    // If each attempt starts over and breaks, it makes no progress.
    if (fault) fault->progress = out.size() >= farthest + kProgress;
    farthest = std::max<std::uint64_t>(farthest, out.size());
    return fault;
  });
  if (!done) return fail(std::move(done.error()));
  known.bytes = out.size();
  return known;
}

Result<ListedPage> Remote::list(const std::string& url, bool deep) const {
  constexpr std::size_t kLargestPage = std::size_t{16} << 20;
  constexpr int kMostEmptyPages = 100;
  const S3Name prefix = s3_name(url);
  ListedPage out;
  std::set<std::string> begun;  // the first name of each page
  int empty = 0;
  std::uint64_t kept = 0;
  do {
    const Request next = s3_.listing(prefix, deep, out.next);
    std::string xml;
    auto done = with_retries([&]() -> std::optional<Fault> {
      xml.clear();
      const Reply reply = get(next, [&](const Reply&, std::span<const std::uint8_t> part) {
        xml.append(part.begin(), part.end());
        return xml.size() <= kLargestPage;
      });
      return fault_of(reply, url);
    });
    if (!done) return fail(std::move(done.error()));
    auto page = parse_listing(xml, prefix.key);
    if (page) {
      const std::string& first = !page->objects.empty()    ? page->objects.front().key
                                 : !page->prefixes.empty() ? page->prefixes.front()
                                                           : out.next;
      const bool nothing = page->objects.empty() && page->prefixes.empty();
      empty = nothing ? empty + 1 : 0;
      if ((!nothing && !begun.insert(first).second) || empty > kMostEmptyPages)
        page = tl::make_unexpected(std::string("repeats its pages"));
    }
    if (page) {
      for (const ListedObject& object : page->objects) kept += sizeof(object) + object.key.size();
      for (const std::string& name : page->prefixes) kept += sizeof(name) + name.size();
      if (kept > options_.most_listed)
        page = tl::make_unexpected(fmt::format(
            "needs more than {} bytes; name a prefix with fewer objects, or pack them into shards",
            options_.most_listed));
    }
    if (!page) return fail(ErrorCode::kDatasetInvalid, fmt::format("{}: the listing {}", url, page.error()));
    std::move(page->objects.begin(), page->objects.end(), std::back_inserter(out.objects));
    std::move(page->prefixes.begin(), page->prefixes.end(), std::back_inserter(out.prefixes));
    out.next = std::move(page->next);
  } while (!out.next.empty());
  std::sort(out.objects.begin(), out.objects.end(),
            [](const ListedObject& a, const ListedObject& b) { return a.key < b.key; });
  std::sort(out.prefixes.begin(), out.prefixes.end());
  return out;
}

}  // namespace headrace::server::remote
