# Tests with other users of the machine: they need the kernel, which qemu does not really emulate.
if(NOT CMAKE_CROSSCOMPILING)
  headrace_test(unit/trust_test.cpp headrace::base)
  if(TARGET headrace_io)
    headrace_test(unit/planted_files_test.cpp headrace::io headrace::source headrace::store PkgConfig::libarchive PkgConfig::xxhash)
  endif()
endif()
