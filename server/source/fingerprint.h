// A running xxh3 hash of everything that a dataset's batches depend on.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace headrace::server::source {

class Fingerprint {
 public:
  Fingerprint() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  Fingerprint& add(std::span<const std::uint8_t> bytes) {
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
    return *this;
  }
  Fingerprint& add(std::uint64_t number) {
    XXH3_64bits_update(state_.get(), &number, sizeof number);
    return *this;
  }
  /// Hashes a final zero byte, too, so that "ab", "c" and "a", "bc" differ.
  Fingerprint& add(std::string_view text) {
    XXH3_64bits_update(state_.get(), text.data(), text.size());
    XXH3_64bits_update(state_.get(), "", 1);
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace headrace::server::source
