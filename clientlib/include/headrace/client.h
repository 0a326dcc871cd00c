// The client library: attach to a Headrace server on this machine and iterate over a stream's batches.
//
//   auto client = or_throw(headrace::Client::connect({.address = "/run/headrace"}));
//   auto stream = or_throw(client.open({.stream = "train"}));
//   for (int epoch = 0; epoch < 10; ++epoch) {
//     while (auto batch = or_throw(stream.next())) {  // std::optional<BatchView>: empty at the epoch's end
//       std::span<const float> image = batch->values<float>("image");
//       ...
//     }                                               // the view's lease ends when it is destroyed
//   }
//
// Thread safety: Client: any thread. Stream: one thread at a time. BatchView: one thread at a time, any
// thread may destroy it, also after its Stream is gone. Fork: a child process cannot use its parent's Client,
// Stream or BatchView: calls give FORKED; destruction does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  /// Any other server is refused (kPermissionDenied) before anything that it says is read.
  std::vector<std::uint32_t> allow_uids = {};
  std::chrono::milliseconds timeout{
      10'000};  ///< for each exchange; connect also retries until then for a server to appear
  /// Asked about every 50 ms while an exchange waits; true gives up with kTimeout (Python: signals).
  std::function<bool()> interrupt = {};
};

/// What a checkpoint holds: which batches the loop has been handed.
struct State {
  Cursor cursor;  ///< the next batch
  std::uint32_t batch_size = 0;
  std::uint32_t world_size = 1;
  std::string stream;
  Fingerprint fingerprint;

  [[nodiscard]] std::string to_json() const;
  static Result<State> from_json(std::string_view text);
};

/// Whose memory the batches are.
enum class Batches : std::uint8_t {
  /// Read-only views on the slots.
  kShared,
  /// The same, for code that does not keep to const (torch takes a read-only array as one to write to): the
  /// ring is mapped copy-on-write, so whoever writes all the same changes nothing but its own view. Where the
  /// kernel has no such views, writing is a segmentation fault. Stream::mapping() is empty.
  kGuarded,
  /// This process's own, to keep and to write to (FieldView::writable): copy-on-write views on the slots, or
  /// copies where a view does not pay (small batches, a loop that writes to most of what it gets, all other
  /// leases held). Not for device copies from the slots: Stream::mapping() is empty.
  kPrivate,
};

/// Who says which batches the loop is done with: behind them the server goes on for resume_from_server.
enum class Commits : std::uint8_t {
  kByNext,    ///< next(): those before the one that it returned last
  kByCaller,  ///< Stream::commit(): where batches are taken ahead of the loop
};

struct OpenOptions {
  std::string stream = {};
  std::string group = {};  ///< empty: "default" on a shard stream, the client's name on a broadcast stream
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string client = {};  ///< name in metrics and errors; empty: "<program>-<pid>-<counter>"
  Join join = Join::kDefault;
  std::optional<State> state = {};  ///< resume: at another batch size or world size, too
  /// Take up the server's memory of this group: this rank's own place while others of the group are attached,
  /// the slowest rank's after all were gone.
  bool resume_from_server = false;
  std::chrono::milliseconds reconnect_timeout{60'000};  ///< how long a dead server may take to come back
  Batches batches = Batches::kShared;
  Commits commits = Commits::kByNext;
  /// The stream is for a DeviceLoader. Required for a stream with fields that the device computes
  /// (StreamInfo::on_device), which is refused otherwise (kInvalidArgument).
  bool for_device = false;
  /// Longest busy wait before sleeping, per next(), whatever was before: costs up to that much CPU per batch,
  /// saves the wake's latency. 0: up to 10 us, and only where batches have lately come within that.
  std::chrono::microseconds spin{0};
  /// Called once per kind of warning (default: one line on stderr).
  std::function<void(std::string_view)> warn = {};
};

/// One field of a batch, read-only memory. Strides are in bytes.
struct FieldView {
  const FieldSpec* spec = nullptr;
  const std::byte* data = nullptr;
  std::vector<std::int64_t> shape;  ///< dense: rows + row shape; ragged: total values + value shape
  std::vector<std::int64_t> strides;
  std::span<const std::int64_t> offsets;  ///< ragged: rows + 1 entries; dense: empty
  std::byte* writable = nullptr;          ///< `data`, if it is this process's own
  [[nodiscard]] std::size_t bytes() const;
};

/// What is known of a row besides its fields.
struct RowInfo {
  std::uint64_t sample_index;
  bool valid;     ///< false: padding or wrapped duplicate
  bool replaced;  ///< stands in for a bad sample
};

/// A lease on one batch. Move-only; the lease ends when it is destroyed or released, in any order between
/// batches.
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
      std::string_view name) const;  ///< kInvalidArgument lists the names that there are
  /// All values of a field as a typed span. The type's size must match the dtype (checked, aborts on a
  /// mismatch).
  template <class T>
  [[nodiscard]] std::span<const T> values(std::string_view name) const {
    const FieldView view = checked_field(name, sizeof(T));
    return {reinterpret_cast<const T*>(view.data), view.bytes() / sizeof(T)};
  }

  /// True if this is this process's own memory: with Batches::kPrivate, or a copy because all other leases
  /// were held by live views.
  [[nodiscard]] bool private_copy() const;
  /// Ends the lease now. The view is empty afterwards.
  void release();

  struct Lease;
  explicit BatchView(std::shared_ptr<Lease> lease);
  /// Shared ownership of the lease, for whoever needs all of the batch's memory for longer.
  [[nodiscard]] std::shared_ptr<Lease> lease() const { return lease_; }
  /// Keeps one field's memory (by its place in fields()): the lease, or that field's copy. For bindings that
  /// hand out arrays.
  [[nodiscard]] std::shared_ptr<const void> keep(std::size_t field) const;

 private:
  [[nodiscard]] FieldView checked_field(std::string_view name, std::size_t element) const;
  std::shared_ptr<Lease> lease_;
};

/// An attachment to one stream, as one lane.
class Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();  ///< detaches; views that live on stay readable

  [[nodiscard]] const StreamInfo& info() const;
  [[nodiscard]] const OpenOptions& options() const;                    ///< that it was opened with
  [[nodiscard]] const std::string& address() const;                    ///< of its server
  [[nodiscard]] const std::vector<std::uint32_t>& allow_uids() const;  ///< that its client was given
  /// Batches in the epoch that next() is in (counted from its start or resume point): the same on every rank.
  [[nodiscard]] std::uint64_t length() const;
  [[nodiscard]] std::uint64_t epoch_length() const;  ///< of a whole epoch
  [[nodiscard]] std::uint64_t epoch() const;         ///< that next() is in, or is about to begin
  [[nodiscard]] bool begun() const;  ///< next() has returned a batch of it, and has not ended it

  /// The next batch of this epoch; nullopt once at its end: the call after that begins the next epoch.
  /// Commits the batch before it. Rides through a server's death and restart. kTimeout says what it waited
  /// for; kServerLost, kLeaseFenced, kStreamFailed, kDraining, kFingerprintMismatch, kForked.
  Result<std::optional<BatchView>> next(std::chrono::milliseconds timeout = std::chrono::minutes(10));
  /// Batches that next() would give without waiting for the server to build them (granted and not taken).
  [[nodiscard]] std::uint32_t ready() const;

  /// Makes `epoch` the one that next() begins, at its first batch. Nothing changes if it is the one that
  /// next() is about to begin or, after a state was loaded, to go on with: a resumed loop may call it for its
  /// first epoch as for every other. Else the server discards this lane's prefetched batches.
  Result<void> set_epoch(std::uint64_t epoch);
  /// Leaves the rest of the epoch under way, if it was begun: next() starts the one after it.
  Result<void> next_epoch();

  /// The first batch that next() has not returned; prefetched ones do not count.
  [[nodiscard]] Cursor cursor() const;
  [[nodiscard]] State state() const;  ///< of the cursor
  Result<void> load_state(const State& state);
  /// With Commits::kByCaller, from any thread: the loop is done with the batches before `consumed`, and has
  /// waited so long since the last commit (the server's metrics tell who waits for whom).
  void commit(const Cursor& consumed, std::chrono::nanoseconds waited = {});

  /// Called by next() about every 100 ms while it waits; return true to give up with kTimeout (Python:
  /// signals).
  void set_interrupt(std::function<bool()> interrupt);

  [[nodiscard]] std::uint32_t max_leases() const;
  [[nodiscard]] std::uint32_t live_views() const;
  /// The mapping of all slots, for pinning; changes when the server was restarted (`mapping_generation`).
  /// Empty but for Batches::kShared.
  [[nodiscard]] std::span<std::byte> mapping() const;
  [[nodiscard]] std::uint64_t mapping_generation() const;
  /// Time spent waiting in next() since open.
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
  std::string parameters;        ///< JSON
  std::vector<std::byte> bytes;  ///< the fields end to end
};

class Client {
 public:
  /// Waits until a server answers or options.timeout is over (kServerUnreachable says where it looked and in
  /// which step it waited). kVersionMismatch names both versions. kPermissionDenied: the directory or the
  /// server in it is of a user that is not trusted, or the server does not admit this one.
  static Result<Client> connect(const ConnectOptions& options = {});
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  [[nodiscard]] const std::string& address() const;
  Result<std::vector<StreamInfo>> streams();
  Result<Stream> open(const OpenOptions& options);
  /// One sample as trainers see it, with the parameters that were drawn for it.
  Result<SampleView> sample(std::string_view stream, std::uint64_t epoch, std::uint64_t index);
  Result<std::string> stats();  ///< JSON
  /// Where each rank of a group is: JSON.
  Result<std::string> cursors(std::string_view stream, std::string_view group);
  Result<void> drain();  ///< asks the server to finish and exit

  struct Impl;
  explicit Client(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace headrace
