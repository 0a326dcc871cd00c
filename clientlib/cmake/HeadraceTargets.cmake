# One folder = one library: headrace_library(NAME DEPS...) builds every .cpp of the calling folder.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(HEADRACE_CCACHE ccache)
if(HEADRACE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HEADRACE_CCACHE})
endif()
find_program(HEADRACE_MOLD mold)
if(HEADRACE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Exactness (design: Determinism): no contraction into fused multiply-add anywhere.
add_library(headrace_flags INTERFACE)
target_compile_options(headrace_flags INTERFACE -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers  # designated initialisers leave out what has a default
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # GCC 12 at -O3: false alarms in std::string (GCC bug 105651)
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # and in std::optional (105593)
if(HEADRACE_WERROR)
  target_compile_options(headrace_flags INTERFACE -Werror)
endif()
if(HEADRACE_SANITIZE)
  add_compile_options(-fsanitize=${HEADRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEADRACE_SANITIZE})
endif()

# Header-only libraries of the sources are no business of a program that links the installed archives.
set(HEADRACE_HEADER_ONLY Boost::headers nlohmann_json::nlohmann_json)

function(headrace_library name)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources)
    file(TOUCH "${CMAKE_BINARY_DIR}/empty.cpp")
    set(sources "${CMAKE_BINARY_DIR}/empty.cpp")
  endif()
  add_library(headrace_${name} STATIC ${sources})
  add_library(headrace::${name} ALIAS headrace_${name})
  set_target_properties(headrace_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(headrace_${name} PUBLIC cxx_std_20)  # of the public headers, wherever they are used
  target_include_directories(headrace_${name}
    PUBLIC "$<BUILD_INTERFACE:${headrace_SOURCE_DIR}/clientlib/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
    PRIVATE "${headrace_SOURCE_DIR}")
  foreach(library ${ARGN})
    if(library IN_LIST HEADRACE_HEADER_ONLY)
      target_link_libraries(headrace_${name} PUBLIC $<BUILD_INTERFACE:${library}>)
    else()
      target_link_libraries(headrace_${name} PUBLIC ${library})
    endif()
  endforeach()
  target_link_libraries(headrace_${name} PRIVATE $<BUILD_INTERFACE:headrace_flags>)
endfunction()
