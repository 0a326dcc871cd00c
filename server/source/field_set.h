// A choice of a source's fields.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace::server::source {

/// Fields from the 65th on are always in it.
class FieldSet {
 public:
  FieldSet() = default;  ///< none of the first 64
  static FieldSet all() { return FieldSet(~std::uint64_t{0}); }

  void add(std::size_t field) {
    if (field < kBits) bits_ |= std::uint64_t{1} << field;
  }
  [[nodiscard]] bool has(std::size_t field) const { return field >= kBits || ((bits_ >> field) & 1) != 0; }
  /// Whether any, or all, of the first `fields` are in it.
  [[nodiscard]] bool has_any(std::size_t fields) const {
    return fields > kBits || (bits_ & first(fields)) != 0;
  }
  [[nodiscard]] bool has_all(std::size_t fields) const { return (bits_ & first(fields)) == first(fields); }
  /// Whether those of the first `fields` that are in `other` are in it as well.
  [[nodiscard]] bool covers(FieldSet other, std::size_t fields) const {
    return (other.bits_ & ~bits_ & first(fields)) == 0;
  }
  [[nodiscard]] FieldSet operator|(FieldSet other) const { return FieldSet(bits_ | other.bits_); }
  [[nodiscard]] FieldSet operator&(FieldSet other) const { return FieldSet(bits_ & other.bits_); }
  /// The choice among the fields that follow the first `fields`.
  [[nodiscard]] FieldSet after(std::size_t fields) const {
    return fields < kBits ? FieldSet((bits_ >> fields) | ~first(kBits - fields)) : all();
  }
  /// The choice with two fields exchanged.
  [[nodiscard]] FieldSet swapped(std::size_t one, std::size_t other) const {
    if (has(one) == has(other)) return *this;
    if (one >= kBits || other >= kBits) return all();
    return FieldSet(bits_ ^ (std::uint64_t{1} << one) ^ (std::uint64_t{1} << other));
  }

 private:
  static constexpr std::size_t kBits = 64;
  static constexpr std::uint64_t first(std::size_t fields) {
    return fields < kBits ? (std::uint64_t{1} << fields) - 1 : ~std::uint64_t{0};
  }
  explicit FieldSet(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_ = 0;
};

}  // namespace headrace::server::source
