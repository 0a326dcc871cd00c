// A value that one thread at a time writes and any thread reads without a lock: a sequence lock.
//
// The version is odd while the words are written; a reader that sees it change reads again. [SYNC published:
// a reader that acquires a new word also sees the odd version stored before it. Fences would do as well, but
// ThreadSanitizer does not know them.]
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace headrace::server::exec {

template <class T>
class Published {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;

 public:
  /// Call it from one thread at a time.
  void store(const T& value) {
    const auto words = std::bit_cast<Words>(value);
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  /// Call it from any thread.
  [[nodiscard]] T load() const {
    for (;;) {
      const std::uint64_t before = version_.load(std::memory_order_acquire);
      Words words;
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before)
        return std::bit_cast<T>(words);
    }
  }

 private:
  std::atomic<std::uint64_t> version_{0};
  std::array<std::atomic<std::uint64_t>, sizeof(T) / sizeof(std::uint64_t)> words_{};
};

}  // namespace headrace::server::exec
