// Samples that another process reads: it packs those of some rows, as its source stores them, and a Supplied
// source unpacks them where the rows are made. That process needs no access to the data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "server/source/source.h"

namespace headrace::server::source {

/// Describes the source that the other process reads, and its sampler.
struct SuppliedAbout {
  std::uint64_t positions = 0;  ///< in an epoch
  std::vector<SourceField> fields;
  bool labelled = true;
  std::vector<std::string> classes;
  std::uint64_t fingerprint = 0;
  std::uint64_t sampler_content = 0;  ///< Sampler::content()

  [[nodiscard]] std::string to_json() const;
  /// kInvalidArgument: it is not of to_json().
  static Result<SuppliedAbout> from_json(std::string_view text);
};

/// Reads the samples and returns them packed, in their order. A sample that read() calls bad is marked as
/// unreadable. `expected`: bytes to reserve. kTransientIo, kDatasetInvalid: see Source.
Result<std::vector<std::uint8_t>> pack_samples(const Source& source, std::span<const std::uint64_t> samples,
                                               std::size_t expected);

/// The source of one epoch at a time, whose order is that of its positions: sample i is the one at position
/// i. Reading a position that has not been handed over is kInvalidArgument.
///
/// Thread safety: as Source, but hand_over() must not run beside any other member.
class Supplied final : public Source {
 public:
  explicit Supplied(SuppliedAbout about) : about_(std::move(about)) {}
  [[nodiscard]] const SuppliedAbout& about() const { return about_; }

  /// Gives the samples at positions [first, first + count) in place of earlier ones. `packed` must stay
  /// unchanged as long as they are read. kInvalidArgument: it is not what pack_samples() made of `count`
  /// samples with these fields.
  Result<void> hand_over(std::uint64_t first, std::uint32_t count, std::span<const std::uint8_t> packed);
  void take_back() { rows_.clear(); }

  [[nodiscard]] std::uint64_t size() const override { return about_.positions; }
  [[nodiscard]] const std::vector<SourceField>& fields() const override { return about_.fields; }
  Result<void> read(std::uint64_t index, Sample& out) const override;
  [[nodiscard]] std::uint64_t whole_index(std::uint64_t index) const override;
  [[nodiscard]] bool labelled() const override { return about_.labelled; }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const override;
  [[nodiscard]] std::string name(std::uint64_t index) const override;
  [[nodiscard]] const std::vector<std::string>& class_names() const override { return about_.classes; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return about_.fingerprint; }

 private:
  struct Row {
    std::uint64_t index = 0;  ///< whole_index() in the source that was read
    std::int64_t label = 0;
    bool unreadable = false;
  };
  struct Piece {
    std::span<const std::uint8_t> bytes;
    decode::PixelShape pixels;
  };
  [[nodiscard]] const Row* row(std::uint64_t position) const {
    return position >= first_ && position - first_ < rows_.size() ? &rows_[position - first_] : nullptr;
  }

  const SuppliedAbout about_;
  std::uint64_t first_ = 0;
  std::vector<Row> rows_;
  std::vector<Piece> pieces_;  ///< of each row, one per field
};

}  // namespace headrace::server::source
