// Samples that another program writes into a pipe: what `headrace pack - OUT` reads, for programs in any
// language. The program writes a line of JSON, reads a line of JSON, then writes samples and the end mark:
//
//   {"headrace": "records", "version": 1, "count": 50000, "labelled": true, "classes": ["cat", "dog"],
//    "identity": "any text", "fields": [{"name": "image", "content": "pixels", "channels": 3}]}
//   <- {"next": 0, "complete": false}
//   sample:  u64 index, i64 label, u32 bytes of the name, u32 1
//            per field: u64 bytes, u32 height, u32 width      (0 x 0 unless its content is pixels)
//            the name, then each field's bytes
//   or bad:  u64 index, i64 label, u32 bytes of the reason, u32 2, the reason (packed as a bad sample)
//   end:     u64 count, i64 0, u32 0, u32 0
//
// Integers are little-endian; nothing is padded. Fields are described as in a packed database (its meta
// record, server/store/field_json.h). `count`, `classes` and `identity` are optional: without a count, the
// end mark gives it. Samples come in order, from `next` on: the earlier ones are in OUT. If `complete`, no
// sample is wanted. A pipe that ends without the end mark leaves OUT incomplete, with all samples that came.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>

#include "server/pack/input.h"

namespace headrace::server::pack {

/// Fills buffers from a descriptor, however its reads are divided. Not thread safe.
class PipeReader {
 public:
  PipeReader(int fd, const std::atomic<bool>& stop) : fd_(fd), stop_(stop) {}

  /// Returns the number of bytes read: fewer than wanted at the end, or if it was stopped. kEnvironment: the
  /// read failed.
  Result<std::size_t> read(std::span<std::uint8_t> out);
  /// A line without its end; nullopt: there is no complete line of at most `most` bytes.
  Result<std::optional<std::string>> line(std::size_t most);

 private:
  Result<void> refill();

  const int fd_;
  const std::atomic<bool>& stop_;
  std::array<std::uint8_t, 65536> buffer_{};
  std::size_t begin_ = 0, end_ = 0;
};

class RecordInput final : public Input {
 public:
  /// Reads the first line. The caller keeps the descriptors. kBadMessage: it is not such a line; says what is
  /// wrong and where.
  static Result<std::unique_ptr<RecordInput>> open(int in, int out, const std::atomic<bool>& stop);

  [[nodiscard]] const store::Meta& meta() const override { return meta_; }
  /// Writes the reply.
  Result<void> begin(std::uint64_t there, bool complete) override;
  /// kBadMessage: the pipe ended within a sample or before the end mark; an index, size or shape that
  /// contradicts the first line. A sample's size is trusted only as far as its bytes arrive.
  Result<bool> read(std::uint64_t index, InputSample& out) override;

 private:
  RecordInput(int in, int out, const std::atomic<bool>& stop) : pipe_(in, stop), out_(out), stop_(stop) {}

  Result<bool> read_next(InputSample& out);
  Result<void> read_field(const source::SourceField& field, std::span<const std::uint8_t> head,
                          source::Item& out);
  Result<void> fill(std::span<std::uint8_t> out, const char* what);
  Result<void> fill_text(std::string& out, std::size_t bytes, const char* what);
  [[nodiscard]] Error wrong(const std::string& what) const;

  PipeReader pipe_;
  const int out_;
  const std::atomic<bool>& stop_;
  store::Meta meta_;

  std::mutex mutex_;
  std::condition_variable turn_;
  // Guarded by mutex_, as is pipe_:
  std::uint64_t next_ = 0;
  bool over_ = false;
  std::vector<std::uint8_t> heads_;
};

}  // namespace headrace::server::pack
