// The version of this build; CMake's project(VERSION) is checked against it in the tests.
#pragma once

namespace headrace {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace headrace
