# The limits that every loader is compared with: tests/bench/README.md.
if(TARGET headrace_session)
  find_package(PNG QUIET)
  set(libpng no_libpng)
  if(PNG_FOUND)
    set(libpng libpng)
  endif()
  add_executable(limits bench/limits/limits.cpp bench/limits/arrays.cpp bench/limits/files.cpp bench/limits/${libpng}.cpp
                        bench/rectangles.cpp)
  target_include_directories(limits PRIVATE "${headrace_SOURCE_DIR}")
  target_link_libraries(limits PRIVATE headrace::transform PkgConfig::turbojpeg PkgConfig::spng CLI11::CLI11
                        nlohmann_json::nlohmann_json headrace_flags)
  if(PNG_FOUND)
    target_link_libraries(limits PRIVATE PNG::PNG)
  endif()
endif()
