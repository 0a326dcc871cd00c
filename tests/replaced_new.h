// The operators new and delete of a program that links replaced_new.cpp: new calls allocate(), which the
// program defines, and delete calls free().
#pragma once

#include <cstddef>

namespace headrace::testing {

/// Throws std::bad_alloc. `alignment`: 1 if the caller asks for none.
void* allocate(std::size_t size, std::size_t alignment);

}  // namespace headrace::testing
