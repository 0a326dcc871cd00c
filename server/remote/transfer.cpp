#include "server/remote/transfer.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <new>
#include <string_view>

namespace headrace::server::remote {
namespace {

constexpr long kMostRedirects = 5;
constexpr long kSlowest = 1024;                  // bytes/s
constexpr curl_off_t kLongestRetryAfter = 3600;  // seconds
constexpr long kBuffer = 256L << 10;
constexpr int kLongestWait = 1000;  // ms until the next on_progress()
constexpr std::size_t kLongestErrorBody = std::size_t{64} << 10;
/// The most bytes of headers in one transfer, with those of redirects and trailers. libcurl 7.88 has no
/// limit.
constexpr std::size_t kLongestHeaders = std::size_t{512} << 10;
/// The hash of an empty body: libcurl 7.88 omits this header for GET, and S3 requires it.
constexpr const char* kNoContent =
    "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

void begin_curl() {
  static const bool kDone = [] {
    // OpenSSL writes to sockets that the peer has closed.
    auto* const before = std::signal(SIGPIPE, SIG_IGN);
    if (before != SIG_DFL) std::signal(SIGPIPE, before);
    return ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  }();
  if (!kDone) throw std::bad_alloc();
}

struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, FreeList>;

void append(List& list, const std::string& line) {
  curl_slist* longer = ::curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  static_cast<void>(list.release());
  list.reset(longer);
}

std::string header(CURL* easy, const char* name) {
  curl_header* found = nullptr;
  constexpr int kOfTheLastReply = -1;
  if (::curl_easy_header(easy, name, 0, CURLH_HEADER, kOfTheLastReply, &found) != CURLHE_OK) return {};
  return found->value;
}

void read_head(CURL* easy, Reply& reply) {
  long status = 0;
  ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  curl_off_t length = -1, retry_after = 0;
  ::curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  ::curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
  reply.status = static_cast<int>(status);
  if (length >= 0) reply.length = static_cast<std::uint64_t>(length);
  reply.delimited = reply.length || !header(easy, "Transfer-Encoding").empty();
  reply.retry_after = std::chrono::seconds(std::clamp<curl_off_t>(retry_after, 0, kLongestRetryAfter));
  reply.etag = header(easy, "ETag");
  reply.last_modified = header(easy, "Last-Modified");
  reply.content_range = header(easy, "Content-Range");
  reply.bucket_region = header(easy, "x-amz-bucket-region");
}

/// Whether a retry would fail the same way.
bool is_permanent(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM:
      return true;
    default:
      return false;
  }
}

/// The argument of libcurl's callbacks.
struct Running {
  CURL* easy = nullptr;
  const std::stop_token* stop = nullptr;
  const TakePart* take = nullptr;
  Reply reply;
  bool head = false, enough = false;
  bool head_ended = false;  ///< the last reply's head has arrived as a whole
  std::size_t header_bytes = 0;
  std::exception_ptr thrown;
};

/// Receives each header line, also of redirects, of interim replies (1xx) and trailers.
std::size_t on_header(char* line, std::size_t one, std::size_t count, void* self) {
  auto& running = *static_cast<Running*>(self);
  const std::string_view text(line, one * count);
  running.header_bytes += text.size();
  const bool trailer = running.head;  // the body has begun
  if (!trailer && text.starts_with("HTTP/")) running.head_ended = false;
  if (!trailer && (text == "\r\n" || text == "\n")) {
    long status = 0;
    ::curl_easy_getinfo(running.easy, CURLINFO_RESPONSE_CODE, &status);
    running.head_ended = status >= 200;
  }
  return running.header_bytes <= kLongestHeaders ? text.size() : 0;
}

std::size_t on_body(char* data, std::size_t one, std::size_t count, void* self) {
  auto& running = *static_cast<Running*>(self);
  const std::size_t size = one * count;
  try {
    if (!running.head) read_head(running.easy, running.reply);
    running.head = true;
    if (running.reply.status < 200) return 0;  // interim replies have no body
    if (running.reply.status >= 300) {
      std::string& body = running.reply.error_body;
      if (body.size() + size > kLongestErrorBody) return 0;
      body.append(data, size);
      return size;
    }
    if ((*running.take)(running.reply, {reinterpret_cast<const std::uint8_t*>(data), size})) return size;
    running.enough = true;
  } catch (...) {  // the caller is C: no exception may pass
    running.thrown = std::current_exception();
  }
  return 0;
}

/// An easy handle for one transfer, over a connection that `multi` keeps. Easy handles are not used again:
/// with libcurl 7.88, a reply whose first header line begins with a blank continues a header that was freed
/// with the handle's previous reply.
class Transfer {
 public:
  explicit Transfer(CURLM* multi) : multi_(multi), easy_(::curl_easy_init()) {
    if (easy_ == nullptr) throw std::bad_alloc();
  }
  ~Transfer() {
    ::curl_multi_remove_handle(multi_, easy_);
    ::curl_easy_cleanup(easy_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  [[nodiscard]] CURL* easy() const { return easy_; }
  [[nodiscard]] CURLcode perform() const {
    CURLMcode failed = ::curl_multi_add_handle(multi_, easy_);
    for (int running = 1; failed == CURLM_OK && running > 0;) {
      failed = ::curl_multi_perform(multi_, &running);
      if (failed == CURLM_OK && running > 0)
        failed = ::curl_multi_poll(multi_, nullptr, 0, kLongestWait, nullptr);
    }
    int left = 0;
    const CURLMsg* const ended = failed == CURLM_OK ? ::curl_multi_info_read(multi_, &left) : nullptr;
    return ended != nullptr ? ended->data.result : CURLE_OUT_OF_MEMORY;
  }

 private:
  CURLM* const multi_;
  CURL* const easy_;
};

int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Running*>(self)->stop->stop_requested() ? 1 : 0;
}

/// Makes the request over a connection that `multi` keeps. Afterwards nothing refers to `multi`.
Reply run(CURLM* multi, const Request& request, const TakePart& take, const Transfers::Options& options,
          const std::stop_token& stop) {
  Running running{.stop = &stop, .take = &take, .reply = {}, .thrown = {}};
  std::array<char, CURL_ERROR_SIZE> why{};
  List headers;
  std::string range, signing;
  const Transfer transfer(multi);  // destroyed first: its end may call the callbacks
  CURL* const easy = transfer.easy();
  running.easy = easy;
  const auto set = [easy](CURLoption option, auto value) { ::curl_easy_setopt(easy, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PATH_AS_IS, 1L);  // S3's keys may have ".." in them
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // a stop does not wait for the resolver
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, request.url.starts_with("https:") ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, request.follow ? 1L : 0L);
  set(CURLOPT_MAXREDIRS, kMostRedirects);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // HTTP/2 would share connections
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, kSlowest);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall.count()));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_BUFFERSIZE, kBuffer);
  set(CURLOPT_USERAGENT, "headrace");
  set(CURLOPT_ERRORBUFFER, why.data());
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &running);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &running);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &on_progress);
  set(CURLOPT_XFERINFODATA, &running);
  if (!options.tls_ca.empty()) set(CURLOPT_CAINFO, options.tls_ca.c_str());
  if (request.range) {
    range = fmt::format("{}-{}", request.range->first, request.range->second);
    set(CURLOPT_RANGE, range.c_str());
  }
  for (const std::string& line : request.headers) append(headers, line);
  if (request.keys != nullptr) {
    signing = fmt::format("aws:amz:{}:s3", request.region);
    set(CURLOPT_AWS_SIGV4, signing.c_str());
    set(CURLOPT_USERNAME, request.keys->id.c_str());
    set(CURLOPT_PASSWORD, request.keys->secret.c_str());
    append(headers, kNoContent);
    if (!request.keys->token.empty()) append(headers, "x-amz-security-token: " + request.keys->token);
  }
  set(CURLOPT_HTTPHEADER, headers.get());

  const CURLcode code = transfer.perform();
  if (running.thrown) std::rethrow_exception(running.thrown);
  const bool in_head = running.header_bytes > 0 && !running.head_ended;
  // libcurl also says this of a header that is longer than its buffer.
  if (code == CURLE_OUT_OF_MEMORY && !in_head) throw std::bad_alloc();
  if (!running.head) read_head(easy, running.reply);
  Reply& reply = running.reply;
  if (code != CURLE_OK && !running.enough) {
    reply.failure = why[0] != '\0' ? why.data() : ::curl_easy_strerror(code);
    if (code == CURLE_SSL_CONNECT_ERROR && (reply.failure.find("wrong version") != std::string::npos ||
                                            reply.failure.find("packet length") != std::string::npos))
      reply.failure += "; does the server expect http:// here?";
    if (code == CURLE_OUT_OF_MEMORY) reply.failure = "one of the headers is too long, or no memory is left";
    if (running.header_bytes > kLongestHeaders)
      reply.failure = fmt::format("the headers have more than {} bytes", kLongestHeaders);
    reply.permanent = is_permanent(code);
  } else if (!running.head_ended && !running.head) {
    reply.failure = "the connection was closed within the reply's headers";
  }
  // A part of a head has no status to rely on. If the target of a redirect gave no reply, neither has this.
  const bool redirected = request.follow && reply.status / 100 == 3;
  if (!running.head_ended || (redirected && !reply.failure.empty())) reply.status = 0;
  return std::move(reply);
}

}  // namespace

struct Transfers::Connection {
  struct Free {
    void operator()(CURLM* multi) const { ::curl_multi_cleanup(multi); }
  };
  std::unique_ptr<CURLM, Free> multi{::curl_multi_init()};
  pid_t owner = ::getpid();
};

Transfers::Transfers(Options options, std::stop_token stop)
    : options_(std::move(options)), stop_(std::move(stop)) {
  begin_curl();
}
Transfers::~Transfers() = default;

std::unique_ptr<Transfers::Connection> Transfers::take_connection() const {
  {
    const std::scoped_lock lock(mutex_);
    // A forked child neither uses nor ends its parent's connections.
    if (!idle_.empty() && idle_.back()->owner != ::getpid()) {
      for (const auto& connection : idle_) static_cast<void>(connection->multi.release());
      idle_.clear();
    }
    if (!idle_.empty()) {
      // Use the last one returned: it is the least likely to have been closed.
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  auto connection = std::make_unique<Connection>();
  if (!connection->multi) throw std::bad_alloc();
  return connection;
}

Reply Transfers::get(const Request& request, const TakePart& take) const {
  auto connection = take_connection();
  Reply reply = run(connection->multi.get(), request, take, options_, stop_);
  // Only now may another thread use it: the transfer has left it.
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(connection));
  return reply;
}

}  // namespace headrace::server::remote
