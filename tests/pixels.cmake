if(TARGET headrace_transform)
  add_library(pixels_make_jpeg STATIC pixels/make_jpeg.cpp)
  target_include_directories(pixels_make_jpeg PUBLIC "${headrace_SOURCE_DIR}")
  target_link_libraries(pixels_make_jpeg PUBLIC PkgConfig::turbojpeg PRIVATE headrace_flags)

  add_executable(pixel_dump pixels/pixel_dump.cpp)
  target_link_libraries(pixel_dump PRIVATE headrace::config headrace::transform pixels_make_jpeg headrace_flags)

  headrace_test(unit/decode_test.cpp headrace::decode pixels_make_jpeg PkgConfig::spng)
  headrace_test(unit/jpeg_tiles_test.cpp headrace::decode pixels_make_jpeg)
  headrace_test(unit/raw_pixels_test.cpp headrace::decode)
  headrace_test(unit/resize_test.cpp headrace::transform hwy::hwy)
  headrace_test(unit/mixing_test.cpp headrace::transform hwy::hwy)
  headrace_test(unit/pixel_ops_test.cpp headrace::transform hwy::hwy)
  headrace_test(unit/plane_kernels_test.cpp headrace::transform hwy::hwy)
  headrace_test(unit/transform_test.cpp headrace::transform pixels_make_jpeg)
  headrace_test(unit/prepare_test.cpp headrace::transform pixels_make_jpeg)
  headrace_test(unit/augmentations_test.cpp headrace::transform pixels_make_jpeg)

  # Figures, not tests: tests/bench/README.md.
  find_package(CLI11 REQUIRED)
  foreach(bench decode_loop pixels_bench)
    add_executable(${bench} bench/${bench}.cpp bench/rectangles.cpp)
    target_include_directories(${bench} PRIVATE "${headrace_SOURCE_DIR}")
    target_link_libraries(${bench} PRIVATE headrace::transform PkgConfig::turbojpeg CLI11::CLI11 Threads::Threads
                          headrace_flags)
  endforeach()
endif()
