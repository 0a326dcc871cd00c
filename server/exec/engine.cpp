#include "server/exec/engine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>

#include "clientlib/base/contract.h"
#include "clientlib/base/nearest.h"
#include "clientlib/base/thrown.h"
#include "clientlib/ring/futex.h"
#include "server/decode/stop.h"
#include "server/log/barrier.h"
#include "server/metrics/cpu_wait.h"
#include "server/placement/apply.h"

namespace headrace::server::exec {
namespace {

/// Longest time that a worker spends on one batch before it checks the other streams.
constexpr std::uint64_t kRunNs = 2'000'000;
/// A worker returns from a run this short soon enough to process acks itself.
constexpr std::uint64_t kBriefNs = 20'000;
/// A worker that has done only brief runs for this long, and has more, wakes another one.
constexpr std::uint64_t kBacklogNs = 50'000;
/// Doorbells make sleeping safe; this only bounds the cost of a client that died before it rang.
constexpr int kSleepMs = 500;

void watch(int epoll, int fd) {
  // Edge-triggered: each ring wakes one worker, and no worker has to read the counter back.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = fd}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/// Runs `what`; an exception stops only this stream. False: it threw.
template <class F>
bool contain(Stream& stream, const char* doing, F what) {
  try {
    what();
    return true;
  } catch (const decode::Stopped&) {
    return false;  // the engine stops, and nobody needs the batch
  } catch (...) {
    stream.stop_after(doing, thrown());
    return false;
  }
}

}  // namespace

Engine::Engine(std::vector<std::unique_ptr<Stream>> streams, unsigned threads, placement::Placement placement,
               std::vector<std::shared_ptr<cache::IdleTiler>> tilers)
    : streams_(std::move(streams)),
      placement_(std::move(placement)),
      tilers_(std::move(tilers)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  require(streams_.size() <= kMaxStreams, "an engine of more than 64 streams");
  watch(epoll_.get(), wake_.get());
  for (unsigned i = 0; i < threads; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->counters = std::make_unique<metrics::StreamCounters[]>(streams_.size());
  }
  // A finished read that workers wait for wakes one of them. The bell is a duplicate descriptor: reads may
  // end after the engine.
  for (const auto& stream : streams_)
    if (auto* const reads = stream->maker().read_ahead())
      reads->ring_when_ready(ring::UniqueFd(::fcntl(wake_.get(), F_DUPFD_CLOEXEC, 0)));
}

Engine::~Engine() {
  stop();
}

void Engine::start() {
  for (const auto& stream : streams_)
    if (auto* const reads = stream->maker().read_ahead()) reads->start();
  for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i]->thread = std::thread([this, i] { run(i); });
}

void Engine::stop() {
  stopping_.store(true);
  ring_wake();
  for (auto& worker : workers_)
    if (worker->thread.joinable()) worker->thread.join();
}

Result<std::size_t> Engine::find(const std::string& name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i]->info().name == name) return i;
    names.push_back(streams_[i]->info().name);
  }
  return fail(no_such_stream(name, names));
}

void Engine::run(std::size_t index) {
  // First: the worker's memory is then allocated on its own node.
  if (!placement_.empty()) placement::run_on(placement_.homes.at(placement_.workers.at(index)).cpus);
  Worker& worker = *workers_[index];
  worker.id = ::gettid();
  const decode::StopOn stop(stopping_);
  std::optional<RowScratch> scratch;  // made in the loop, which handles a lack of memory
  std::unique_lock lock(mutex_);
  while (!stopping_.load(std::memory_order_relaxed)) {
    try {
      if (!scratch) scratch.emplace();
      if (!run_one(worker, *scratch, lock)) park(worker, *scratch, lock);
    } catch (...) {
      // Thrown by tiling or by the worker's own state: contain() handles the streams' exceptions.
      if (!lock.owns_lock()) lock.lock();
      worker.away = false;
      log::thrown("a worker");
      sleep(lock);
    }
  }
  kick();  // one wake-up may stand for several: pass it on
}

bool Engine::run_one(Worker& worker, RowScratch& scratch, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t now = ring::monotonic_ns();
  pump_all(now);
  const auto [job, picked] = pick(now);
  collect_wakes(worker);
  if (!job) {
    if (worker.wakes.empty()) return false;
    lock.unlock();
    wake_clients(worker);
    lock.lock();
    return true;
  }
  Stream& stream = *picked;
  const bool brief = stream.run_ns() < kBriefNs;
  if (worker.busy_since_ns == 0) worker.busy_since_ns = now;
  if (brief && now - worker.busy_since_ns > kBacklogNs) {
    worker.busy_since_ns = now;
    kick();
  }
  worker.away = !brief;
  publish_idle();
  // There may be rows, acks or slots for another worker, too; SYNC server-sleeps for the sleeping ones.
  if (!brief || (job->unclaimed() && job->rows.rows > job->slice)) kick();
  lock.unlock();
  wake_clients(worker);
  const auto index = static_cast<std::size_t>(
      std::find_if(streams_.begin(), streams_.end(), [&](const auto& s) { return s.get() == picked; }) -
      streams_.begin());
  worker.slice_since_ns.store(now, std::memory_order_relaxed);
  bool completed = false;
  contain(stream, "could not make rows",
          [&] { completed = job->work(scratch, worker.counters[index], now + kRunNs); });
  worker.slice_since_ns.store(0, std::memory_order_relaxed);
  lock.lock();
  worker.away = false;
  stream.note_run(ring::monotonic_ns() - now);
  if (completed)
    contain(stream, "could not complete a batch", [&] { stream.complete(*job, worker.counters[index]); });
  return true;
}

Engine::Picked Engine::pick(std::uint64_t now_ns) {
  // Emptiest ring first; among equals, the stream that has had the least of the workers' time.
  struct Candidate {
    double fullness;
    Stream* stream;
  };
  std::array<Candidate, kMaxStreams> order;
  auto end = order.begin();
  for (const auto& stream : streams_) *end++ = {stream->lanes().fullness(), stream.get()};
  std::sort(order.begin(), end, [](const Candidate& a, const Candidate& b) {
    return a.fullness != b.fullness ? a.fullness < b.fullness : a.stream->worked_ns() < b.stream->worked_ns();
  });
  for (auto candidate = order.begin(); candidate != end; ++candidate) {
    std::shared_ptr<FillJob> job;
    contain(*candidate->stream, "could not choose the next batch",
            [&] { job = candidate->stream->next_job(now_ns); });
    if (job) return {std::move(job), candidate->stream};
  }
  return {};
}

void Engine::pump_all(std::uint64_t now_ns) {
  for (auto& stream : streams_) contain(*stream, "could not hand out batches", [&] { stream->pump(now_ns); });
}

void Engine::collect_wakes(Worker& worker) {
  for (auto& stream : streams_)
    if (const std::uint64_t lanes = stream->lanes().take_wakes())
      worker.wakes.push_back({&stream->ring(), lanes});
}

void Engine::wake_clients(Worker& worker) {
  for (const Worker::Wake& wake : worker.wakes)
    for (std::uint64_t lanes = wake.lanes; lanes != 0; lanes &= lanes - 1)
      wake.ring->wake(static_cast<std::uint32_t>(std::countr_zero(lanes)));
  worker.wakes.clear();
}

void Engine::kick() {
  if (sleepers_ > 0) ring_wake();
}

void Engine::ring_wake() {
  const std::uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) std::abort();
}

bool Engine::has_acks() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->lanes().has_acks(); });
}

void Engine::publish_idle() {
  const auto away = std::count_if(workers_.begin(), workers_.end(), [](const auto& w) { return w->away; });
  const bool none_polls = sleepers_ + static_cast<std::size_t>(away) == workers_.size();
  const ring::ServerIdle idle = sleepers_ == 0 ? ring::kServerAwake
                                : none_polls   ? ring::kServerRests
                                               : ring::kServerHalfAwake;
  if (idle == idle_) return;
  idle_ = idle;
  for (auto& stream : streams_) stream->ring().set_idle(idle);
}

void Engine::park(Worker& worker, RowScratch& scratch, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t since = ring::monotonic_ns();
  worker.busy_since_ns = 0;
  if (tile(worker, lock)) return;
  if (!poll_acks(since + worker.spin.ns(), lock)) {
    // While the lock was released, new work woke only sleeping workers, not this one.
    if (run_one(worker, scratch, lock)) return;
    sleep(lock);
  }
  worker.spin.waited(ring::monotonic_ns() - since);
}

bool Engine::tile(Worker& worker, std::unique_lock<std::mutex>& lock) {
  const auto found =
      std::find_if(tilers_.begin(), tilers_.end(), [](const auto& tiler) { return tiler->has_work(); });
  if (found == tilers_.end()) {
    worker.tiler.reset();
    return false;
  }
  if (tiling_ > 0 && tiling_ + 1 >= workers_.size()) return false;
  // An open batch has priority: it may only lack a sample that is being read.
  if (std::any_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream->filling(); }))
    return false;
  worker.away = true;
  publish_idle();
  // SYNC server-sleeps, as before sleeping: acks for which no client rang come first.
  if (!has_acks()) {
    ++tiling_;
    // Wake one more of the workers that slept while a batch was open.
    if (tiling_ + 1 < workers_.size()) kick();
    lock.unlock();
    try {
      (*found)->tile_one(worker.tiler);
    } catch (...) {  // the image stays as it is
      log::thrown("a worker");
    }
    lock.lock();
    --tiling_;
  }
  worker.away = false;
  return true;
}

bool Engine::poll_acks(std::uint64_t until_ns, std::unique_lock<std::mutex>& lock) {
  // One worker at a time: a second one would only contend for the lock.
  if (polling_) return false;
  polling_ = true;
  bool found = false;
  while (!found && ring::monotonic_ns() < until_ns) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    found = has_acks();
  }
  polling_ = false;
  return found;
}

void Engine::sleep(std::unique_lock<std::mutex>& lock) {
  ++sleepers_;
  publish_idle();
  // SYNC server-sleeps: an ack stored before its client saw the flag is seen now; a later one rings.
  const bool again = has_acks();
  if (!again) {
    lock.unlock();
    epoll_event event;
    ::epoll_wait(epoll_.get(), &event, 1, kSleepMs);
    lock.lock();
  }
  --sleepers_;
  publish_idle();
}

Result<wire::AttachReply> Engine::open(std::size_t index, const wire::OpenRequest& request) {
  std::uint32_t clients = 0;
  auto allowed = inspect(index, [&](const Stream& stream) {
    clients = stream.lanes().used_count() + 1;
    return stream.lanes().check(request);  // a client that is refused anyway needs no memory
  });
  if (!allowed) return fail(std::move(allowed.error()));
  {
    const placement::InterleavedMemory interleaved(placement_.memory);
    if (auto room = streams_[index]->make_room(clients); !room) return fail(std::move(room.error()));
  }
  return with(index, [&](Stream& stream) { return stream.lanes().open(request); });
}

Result<ring::UniqueFd> Engine::make_doorbell() {
  ring::UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell) return fail(ErrorCode::kEnvironment, fmt::format("eventfd: {}", std::strerror(errno)));
  watch(epoll_.get(), doorbell.get());
  return doorbell;
}

void Engine::unwatch(const ring::UniqueFd& doorbell) {
  if (doorbell) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, doorbell.get(), nullptr);
}

metrics::StreamTotals Engine::totals(std::size_t stream) const {
  metrics::StreamTotals totals;
  for (const auto& worker : workers_) totals.add(worker->counters[stream]);
  return totals;
}

std::uint64_t Engine::stream_busy_ns(std::size_t stream) const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->counters[stream].busy_ns.get();
  return sum;
}

std::uint64_t Engine::busy_ns() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) sum += stream_busy_ns(i);
  return sum;
}

std::uint64_t Engine::cpu_wait_ns() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_)
    if (const pid_t id = worker->id; id != 0) sum += metrics::cpu_wait_ns(id);
  return sum;
}

std::uint64_t Engine::longest_slice_ns(std::uint64_t now_ns) const {
  std::uint64_t longest = 0;
  for (const auto& worker : workers_)
    if (const std::uint64_t since = worker->slice_since_ns.load(std::memory_order_relaxed);
        since && since < now_ns)
      longest = std::max(longest, now_ns - since);
  return longest;
}

}  // namespace headrace::server::exec
