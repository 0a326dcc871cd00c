// The client library: attach to a Headrace server on this machine and iterate over a stream's batches.
//
//   auto client = or_throw(headrace::Client::connect({.address = "/run/headrace"}));
//   auto stream = or_throw(client.open({.stream = "train"}));
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     while (auto batch = or_throw(stream.next())) {  // std::optional<BatchView>: empty at the epoch's end
//       std::span<const float> image = or_throw(batch->values<float>("image"));
//       ...
//     }                                               // the view's lease ends when it is destroyed
//   }
//
// Thread safety: Client: any thread. Stream: one thread at a time. BatchView: one thread at a time; any
// thread may destroy it, even after its Stream. Fork: a child process cannot use its parent's Client, Stream
// or BatchView: calls fail with kForked, and destructors do nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "headrace/cursor.h"
#include "headrace/error.h"
#include "headrace/field.h"
#include "headrace/stream_info.h"

namespace headrace {

struct ConnectOptions {
  /// The server's directory, or "ipc://<directory>". Empty: HEADRACE_ADDRESS, then $XDG_RUNTIME_DIR/headrace,
  /// then /tmp/headrace-<uid>: the server's own default.
  std::string address = {};
  /// Users, besides this process's own and root, whose server is trusted; HEADRACE_ALLOW_UIDS adds to them.
  /// Any other server is refused (kPermissionDenied) before its data is read.
  std::vector<std::uint32_t> allow_uids = {};
  /// The limit of each request. connect() also waits this long for a server to appear.
  std::chrono::milliseconds timeout{10'000};
  /// Called about every 50 ms while a request waits. If it returns true, the request fails with kTimeout
  /// (Python: signals).
  std::function<bool()> interrupt = {};
};

/// The content of a checkpoint: which batches the loop has received.
struct State {
  Cursor cursor;  ///< the next batch
  std::uint32_t batch_size = 0;
  std::uint32_t world_size = 1;
  std::string stream;
  Fingerprint fingerprint;

  [[nodiscard]] std::string to_json() const;
  static Result<State> from_json(std::string_view text);
};

/// The memory that batches refer to.
enum class Batches : std::uint8_t {
  /// Read-only views on the slots.
  kShared,
  /// The same, for code that may ignore const (torch treats a read-only array as writable). The ring is
  /// mapped copy-on-write, so a write changes only this process's view. If the kernel does not support such
  /// views, a write is a segmentation fault. Stream::mapping() is empty.
  kGuarded,
  /// Private memory, which the loop may keep and write to (FieldView::writable). A batch is a copy-on-write
  /// view on its slot. It is a copy instead if it is small, if the loop writes to most of each batch, if live
  /// views hold all other leases, or if the kernel does not support such views. Stream::mapping() is empty,
  /// so slots cannot be copied to a device.
  kPrivate,
};

/// How the server learns which batches the loop has consumed; resume_from_server resumes after them.
enum class Commits : std::uint8_t {
  kByNext,    ///< by next(): all batches before the one that it returned last
  kByCaller,  ///< by Stream::commit(): for callers that fetch batches ahead of the loop
};

struct OpenOptions {
  std::string stream = {};
  std::string group = {};  ///< empty: "default" on a shard stream, the client's name on a broadcast stream
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string client = {};  ///< name in metrics and errors; empty: "<program>-<pid>-<counter>"
  Join join = Join::kDefault;
  std::optional<State> state = {};  ///< resume from it, even at another batch size or world size
  /// Resume from a position that the server remembers for this group: this rank's own while other ranks of
  /// the group are attached, else the slowest rank's. Not together with `state`, kNow or kEpochStart.
  bool resume_from_server = false;
  std::chrono::milliseconds reconnect_timeout{60'000};  ///< how long a dead server may take to come back
  Batches batches = Batches::kShared;
  Commits commits = Commits::kByNext;
  /// The stream is for a DeviceLoader. Required for a stream with fields that the device computes
  /// (StreamInfo::on_device), which is refused otherwise (kInvalidArgument).
  bool for_device = false;
  /// How long each next() may spin before it sleeps. It costs up to that much CPU time per batch, and saves
  /// the latency of a wake. 0: at most 10 us, and only if recent batches came within that time.
  std::chrono::microseconds spin{0};
  /// Called once per kind of warning (default: one line on stderr).
  std::function<void(std::string_view)> warn = {};
};

/// One field of a batch, read-only memory. Strides are in bytes.
struct FieldView {
  const FieldSpec* spec = nullptr;
  const std::byte* data = nullptr;
  std::vector<std::int64_t> shape;  ///< dense: rows, then a row's shape; ragged: values, then a value's shape
  std::vector<std::int64_t> strides;
  std::span<const std::int64_t> offsets;  ///< ragged: rows + 1 entries; dense: empty
  std::byte* writable = nullptr;          ///< `data` if it is private memory, else null
  [[nodiscard]] std::size_t bytes() const;
};

/// Properties of a row besides its fields.
struct RowInfo {
  std::uint64_t sample_index;
  bool valid;     ///< false: padding or wrapped duplicate
  bool replaced;  ///< replaces a bad sample
};

/// A lease on one batch. Move-only. The lease ends when the view is destroyed or released; leases may end in
/// any order.
class BatchView {
 public:
  BatchView(BatchView&&) noexcept;
  BatchView& operator=(BatchView&&) noexcept;
  ~BatchView();

  [[nodiscard]] std::uint64_t epoch() const;
  [[nodiscard]] std::uint64_t batch() const;  ///< within the epoch, from the cursor's origin
  [[nodiscard]] std::uint32_t rows() const;
  [[nodiscard]] std::uint32_t valid_rows() const;
  [[nodiscard]] RowInfo row(std::uint32_t at) const;
  [[nodiscard]] std::vector<RowInfo> all_rows() const;  ///< a copy, to keep
  [[nodiscard]] bool valid(std::uint32_t at) const { return row(at).valid; }
  [[nodiscard]] bool replaced(std::uint32_t at) const { return row(at).replaced; }
  [[nodiscard]] std::uint64_t sample_index(std::uint32_t at) const { return row(at).sample_index; }

  [[nodiscard]] const std::vector<FieldSpec>& fields() const;
  [[nodiscard]] Result<FieldView> field(
      std::string_view name) const;  ///< kInvalidArgument: no such field; lists the names
  /// All values of a field as a typed span, valid until the view is released or destroyed. kInvalidArgument
  /// if there is no such field, or if T has another size than the dtype, or is float or double where the
  /// dtype is not.
  template <class T>
  [[nodiscard]] Result<std::span<const T>> values(std::string_view name) const {
    const Result<FieldView> view = field_of(name, sizeof(T), std::is_floating_point_v<T>);
    if (!view) return fail(view.error());
    return std::span<const T>(reinterpret_cast<const T*>(view->data), view->bytes() / sizeof(T));
  }

  /// True if the batch is private memory: with Batches::kPrivate, or a copy because live views held all other
  /// leases.
  [[nodiscard]] bool private_copy() const;
  /// Ends the lease now. The view is empty afterwards.
  void release();

  struct Lease;
  explicit BatchView(std::shared_ptr<Lease> lease);
  /// Shared ownership of the lease, for callers that need all of the batch's memory for longer.
  [[nodiscard]] std::shared_ptr<Lease> lease() const { return lease_; }
  /// Shared ownership of the memory of one field (by its index in fields()): the lease, or that field's copy.
  /// For bindings that return arrays.
  [[nodiscard]] std::shared_ptr<const void> keep(std::size_t field) const;

 private:
  [[nodiscard]] Result<FieldView> field_of(std::string_view name, std::size_t bytes, bool floating) const;
  std::shared_ptr<Lease> lease_;
};

/// An attachment to one stream, as one lane.
class Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();  ///< detaches; existing views stay readable

  [[nodiscard]] const StreamInfo& info() const;
  [[nodiscard]] const OpenOptions& options() const;                    ///< those of Client::open()
  [[nodiscard]] const std::string& address() const;                    ///< the server's directory
  [[nodiscard]] const std::vector<std::uint32_t>& allow_uids() const;  ///< see ConnectOptions
  /// The number of batches in the current epoch, from its start or resume point: the same on every rank.
  [[nodiscard]] std::uint64_t length() const;
  [[nodiscard]] std::uint64_t epoch_length() const;  ///< batches in a whole epoch
  [[nodiscard]] std::uint64_t epoch() const;         ///< the epoch that next() is in, or is about to begin
  [[nodiscard]] bool begun() const;  ///< next() has returned a batch, but not yet the end, of epoch()

  /// The next batch of this epoch; nullopt once at its end: the call after that begins the next epoch.
  /// Commits the batch before it. Waits for a server that exited to restart, and attaches again; what another
  /// thread writes to a batch of the old server meanwhile may be lost. Errors:
  /// kTimeout (the message says what it waited for), kServerLost, kLeaseFenced, kStreamFailed,
  /// kFingerprintMismatch, kNotEnoughMemory (no memory for a private copy), kForked.
  Result<std::optional<BatchView>> next(std::chrono::milliseconds timeout = std::chrono::minutes(10));
  /// Batches that next() can return without waiting for the server to build them (granted, but not yet
  /// returned).
  [[nodiscard]] std::uint32_t ready() const;

  /// Makes next() begin `epoch` at its first batch; the server discards this lane's prefetched batches. Does
  /// nothing if next() is about to begin that epoch or, after a state was loaded, to continue it. So a loop
  /// may call it before each epoch, even when it resumes.
  Result<void> set_epoch(std::uint64_t epoch);
  /// Skips the rest of the current epoch if it was begun: next() starts the one after it.
  Result<void> next_epoch();

  /// The first batch that next() has not returned; prefetched ones do not count.
  [[nodiscard]] Cursor cursor() const;
  [[nodiscard]] State state() const;  ///< the state at cursor()
  Result<void> load_state(const State& state);
  /// With Commits::kByCaller, from any thread: commits the batches before `consumed`. `waited`: how long the
  /// loop has waited for batches since the last commit, for the server's metrics.
  void commit(const Cursor& consumed, std::chrono::nanoseconds waited = {});

  /// next() calls `interrupt` about every 100 ms while it waits. If it returns true, next() fails with
  /// kTimeout (Python: signals).
  void set_interrupt(std::function<bool()> interrupt);

  [[nodiscard]] std::uint32_t max_leases() const;
  [[nodiscard]] std::uint32_t live_views() const;
  /// The memory of all slots that were granted so far, for pinning. It grows when the server adds slots for
  /// further clients, and is another mapping when the stream has attached again (`mapping_generation`). Empty
  /// unless batches are Batches::kShared.
  [[nodiscard]] std::span<std::byte> mapping() const;
  [[nodiscard]] std::uint64_t mapping_generation() const;
  /// The time that next() has waited since the stream was opened.
  [[nodiscard]] std::chrono::nanoseconds waited() const;

  struct Impl;
  explicit Stream(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

struct SampleView {
  std::uint64_t sample_index = 0;
  std::string name;
  bool replaced = false;
  std::int64_t label = 0;
  std::vector<FieldSpec> fields;
  std::string parameters;        ///< JSON: what was drawn for each transform
  std::vector<std::byte> bytes;  ///< the fields end to end, or a PNG file
};

class Client {
 public:
  /// Waits until a server answers or options.timeout has passed (kServerUnreachable: the message names the
  /// directory and the step that it waited in). kVersionMismatch names both versions. kPermissionDenied: the
  /// directory or its server belongs to a user that is not trusted, or the server does not admit this user.
  static Result<Client> connect(const ConnectOptions& options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  [[nodiscard]] const std::string& address() const;
  Result<std::vector<StreamInfo>> streams();
  /// Attaches to a stream. Errors: kNoSuchStream, kInvalidArgument, kGroupMismatch, kFingerprintMismatch (of
  /// options.state), and kRankTaken, kClientNameTaken or kRingFull because of other clients.
  Result<Stream> open(const OpenOptions& options);
  /// The sample at position `index` of the epoch's order, as trainers receive it, with the parameters that
  /// were drawn for it.
  /// With `picture`, the name of an image field, SampleView::bytes are a PNG file of that field.
  Result<SampleView> sample(std::string_view stream, std::uint64_t epoch, std::uint64_t index,
                            std::string_view picture = {});
  Result<std::string> stats();  ///< JSON
  /// The positions of a group's ranks, as JSON.
  Result<std::string> cursors(std::string_view stream, std::string_view group);
  Result<void> drain();  ///< asks the server to finish and exit

  struct Impl;
  explicit Client(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace headrace
