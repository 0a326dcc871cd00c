// Checked reading of one JSON object from the other side: types, integer ranges, string lengths. Only the
// first error is kept, and members after it are skipped. Unknown members are ignored, so that newer peers can
// add some.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "clientlib/wire/protocol.h"
#include "headrace/error.h"

namespace headrace::wire {

inline constexpr std::size_t kMaxName =
    200;  ///< of streams, groups, clients, classes' neighbors in messages: bytes
inline constexpr std::size_t kMaxText = 4096;  ///< of paths and fingerprints
inline constexpr std::uint64_t kMaxCount = std::uint64_t{1}
                                           << 48;  ///< of epochs, batches, samples: sums cannot overflow

class ObjectReader {
 public:
  /// `what` names the object in errors, e.g. "open request".
  ObjectReader(const nlohmann::json& found, std::string_view what);

  /// The member, unchecked; nullptr if it is absent (an error if `required`) or after an earlier error.
  const nlohmann::json* member(std::string_view name, bool required);

  ObjectReader& text(std::string_view name, std::string& out, std::size_t longest = kMaxText);
  /// Text without control characters, at most kMaxName bytes.
  ObjectReader& name(std::string_view name, std::string& out);
  ObjectReader& flag(std::string_view name, bool& out);
  template <class T>
  ObjectReader& integer(std::string_view name, T& out, std::uint64_t most = std::numeric_limits<T>::max()) {
    if (const auto value = unsigned_member(name, most)) out = static_cast<T>(*value);
    return *this;
  }
  ObjectReader& signed_integer(std::string_view name, std::int64_t& out);
  /// A nested body with its own from_json.
  template <class T>
  ObjectReader& object(std::string_view name, T& out) {
    if (const auto* found = member(name, true)) keep(from_json(*found, out));
    return *this;
  }
  template <class T>
  ObjectReader& optional_object(std::string_view name, std::optional<T>& out) {
    const auto* found = member(name, false);
    if (found != nullptr && !found->is_null()) keep(from_json(*found, out.emplace()));
    return *this;
  }
  template <class T, class Read>
  ObjectReader& list(std::string_view name, T& out, std::size_t most, Read read) {
    const auto* found = member(name, true);
    if (found == nullptr || !check_list(name, *found, most)) return *this;
    out.reserve(found->size());
    for (const auto& entry : *found) keep(read(entry, out.emplace_back()));
    return *this;
  }
  /// A name from a fixed set; `lookup` returns an optional.
  template <class T, class Lookup>
  ObjectReader& choice(std::string_view name, T& out, Lookup lookup) {
    std::string word;
    text(name, word, kMaxName);
    if (!error_) {
      if (const auto value = lookup(word))
        out = *value;
      else
        refuse(name, "has the unknown value '" + word + "'");
    }
    return *this;
  }

  void refuse(std::string_view name, std::string_view problem);
  void keep(Result<void> inner);
  [[nodiscard]] Result<void> done() const;

 private:
  std::optional<std::uint64_t> unsigned_member(std::string_view name, std::uint64_t most);
  bool check_list(std::string_view name, const nlohmann::json& found, std::size_t most);

  const nlohmann::json& json_;
  std::string_view what_;
  std::optional<Error> error_;
};

}  // namespace headrace::wire
