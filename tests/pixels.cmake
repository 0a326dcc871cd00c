if(TARGET headrace_transform)
  add_library(pixels_make_jpeg STATIC pixels/make_jpeg.cpp)
  target_include_directories(pixels_make_jpeg PUBLIC "${headrace_SOURCE_DIR}")
  target_link_libraries(pixels_make_jpeg PUBLIC PkgConfig::turbojpeg PRIVATE headrace_flags)

  add_executable(pixel_dump pixels/pixel_dump.cpp)
  target_link_libraries(pixel_dump PRIVATE headrace::transform pixels_make_jpeg headrace_flags)
endif()
