#include "tests/replaced_new.h"

#include <cstdlib>
#include <new>

// Not inlined: GCC would see free() beside a new that it knows.
// NOLINTBEGIN(cppcoreguidelines-no-malloc, misc-new-delete-overloads)
void* operator new(std::size_t size) {
  return headrace::testing::allocate(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return headrace::testing::allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc, misc-new-delete-overloads)
