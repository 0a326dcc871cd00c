# The C++ trainer of the chaos runs: tests/chaos/README.md.
if(TARGET headrace_client)
  pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET GLOBAL libxxhash)
  add_executable(chaos_consumer chaos/consumer.cpp)
  target_link_libraries(chaos_consumer PRIVATE headrace::client nlohmann_json::nlohmann_json PkgConfig::xxhash headrace_flags)
endif()
