// The samples of a simulation, and what each row must be: a pure function of its epoch and position.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "clientlib/ring/layout.h"
#include "server/exec/sample_maker.h"
#include "tests/forwarding_source.h"
#include "tests/numbers_source.h"

namespace headrace::testing {

/// Numbers, some of which are bad. Other threads do something while a row is made: here, `meanwhile`.
class SimulatedSource final : public ForwardingSource {
 public:
  /// `bad_every`: every so many samples one is bad; 0: none is.
  SimulatedSource(std::uint64_t samples, std::int64_t width, std::uint64_t bad_every);

  Result<void> read(std::uint64_t index, server::source::Sample& out) const override {
    return read_fields(index, server::source::FieldSet::all(), out);
  }
  Result<void> read_fields(std::uint64_t index, server::source::FieldSet wanted,
                           server::source::Sample& out) const override;
  [[nodiscard]] bool is_bad(std::uint64_t index) const {
    return bad_every_ != 0 && index % bad_every_ == bad_every_ - 1;
  }

  std::function<void()> meanwhile;
  bool fails = false;                ///< from now on, reading is an I/O error
  mutable bool undisturbed = false;  ///< neither of the two applies

 private:
  const std::uint64_t bad_every_;
};

class SimulatedRows {
 public:
  SimulatedRows(std::uint64_t samples, std::int64_t width, std::uint64_t bad_every);

  [[nodiscard]] SimulatedSource& source() const { return *source_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] std::size_t row_bytes() const { return 2 * width_ + sizeof(std::int64_t); }
  /// A maker over the source, as each stream of a server has one.
  [[nodiscard]] std::shared_ptr<server::exec::SampleMaker> make_maker() const;
  /// What streams share of a row: all of it.
  [[nodiscard]] server::exec::SharedFields shared_fields() const;

  struct Expected {
    std::uint64_t sample = 0;
    bool replaced = false;
    std::uint64_t own = 0;  ///< the sample that the order has at this position
  };
  const Expected& at(std::uint64_t epoch, std::uint64_t position);
  /// Writes the row of each field there.
  void write(std::uint64_t sample, std::byte* x, std::byte* y, std::byte* label) const;
  /// Whether these are the fields of that row.
  [[nodiscard]] bool equals(std::uint64_t sample, const std::byte* x, const std::byte* y,
                            const std::byte* label) const;
  [[nodiscard]] std::size_t width() const { return width_; }

 private:
  const std::uint64_t samples_;
  const std::size_t width_;
  const std::shared_ptr<SimulatedSource> source_;
  const std::shared_ptr<server::exec::SampleMaker> reference_;
  server::exec::LooseRow row_;
  server::exec::RowScratch scratch_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Expected> expected_;
};

}  // namespace headrace::testing
