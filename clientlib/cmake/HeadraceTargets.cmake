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

# Exact results (design: Determinism): no contraction into fused multiply-add anywhere.
add_library(headrace_flags INTERFACE)
target_compile_options(headrace_flags INTERFACE -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers  # designated initializers may omit members that have a default
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # GCC 12 at -O3: false alarms in std::string (GCC bug 105651)
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # and in std::optional (105593)
# GCC 12 clears and copies 32 bytes to 8 KiB with `rep stos` and `rep movs`: 90 ns for the 100 bytes of a drawn step.
include(CheckCXXCompilerFlag)
set(HEADRACE_NO_REP -mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign -mmemcpy-strategy=unrolled_loop:256:noalign,libcall:-1:noalign)
check_cxx_compiler_flag("${HEADRACE_NO_REP}" HEADRACE_HAS_STRATEGIES)
if(HEADRACE_HAS_STRATEGIES)
  target_compile_options(headrace_flags INTERFACE ${HEADRACE_NO_REP})
endif()
# The compiler's garbage collector costs a sixth of the time: it starts at 1 GB, not at 128 MB.
target_compile_options(headrace_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>)
if(HEADRACE_WERROR)
  target_compile_options(headrace_flags INTERFACE -Werror)
endif()
# Memory errors become harder to exploit: server/SECURITY.md. Debian's packages are built with the same flags.
if(NOT HEADRACE_SANITIZE)
  target_compile_options(headrace_flags INTERFACE -fstack-protector-strong -fstack-clash-protection
    $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-fcf-protection>
    $<$<CONFIG:Release>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
endif()
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
if(HEADRACE_SANITIZE)
  add_compile_options(-fsanitize=${HEADRACE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEADRACE_SANITIZE})
endif()

# Header-only libraries that a program does not need when it links the installed archives.
set(HEADRACE_HEADER_ONLY Boost::headers nlohmann_json::nlohmann_json)

# headrace_library(NAME DEPS...): one library from every .cpp file of the calling folder.
function(headrace_library name)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  if(NOT sources)
    file(TOUCH "${CMAKE_BINARY_DIR}/empty.cpp")
    set(sources "${CMAKE_BINARY_DIR}/empty.cpp")
  endif()
  add_library(headrace_${name} STATIC ${sources})
  add_library(headrace::${name} ALIAS headrace_${name})
  set_target_properties(headrace_${name} PROPERTIES EXPORT_NAME ${name})
  headrace_together(headrace_${name})
  target_compile_features(headrace_${name} PUBLIC cxx_std_20)  # the public headers need C++20
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

# headrace_together(TARGET): compiles six of its files at a time, because headers and their templates cost more than the files themselves;
# names in their anonymous namespaces must differ. The target's property HEADRACE_TOGETHER_OPTIONS applies only to the joined files.
# CMake's UNITY_BUILD is not used, because ccache shares results between the release build and the wheel only if both compile the same
# file: presets and wheel write the joined files to one folder.
function(headrace_together target)
  if(HEADRACE_TOGETHER)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL headrace_join_files ${target})")
  endif()
endfunction()

# headrace_alone(FILE...): hot loops, whose speed depends on what the compiler sees beside them, and files that do not compile together.
function(headrace_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Runs at the end of the folder's list file, when all files and their properties are known.
function(headrace_join_files target)
  get_target_property(files ${target} SOURCES)
  get_filename_component(folder "${HEADRACE_TOGETHER_IN}" ABSOLUTE BASE_DIR "${headrace_SOURCE_DIR}")
  get_target_property(joined_options ${target} HEADRACE_TOGETHER_OPTIONS)
  set(kept "")
  set(group "")
  set(count 0)
  foreach(file ${files} end)
    set(alone OFF)  # also what has a property that another file must not have
    foreach(property SKIP_UNITY_BUILD_INCLUSION COMPILE_OPTIONS COMPILE_DEFINITIONS COMPILE_FLAGS INCLUDE_DIRECTORIES GENERATED HEADER_FILE_ONLY)
      get_source_file_property(value "${file}" ${property})
      if(value)
        set(alone ON)
      endif()
    endforeach()
    if(file STREQUAL end OR count EQUAL 6)
      if(count GREATER 0)
        string(SHA256 hash "${group}")
        string(SUBSTRING "${hash}" 0 12 hash)
        if(NOT EXISTS "${folder}/${target}-${hash}.cpp")
          file(WRITE "${folder}/${target}-${hash}.cpp" "${group}")
        endif()
        list(APPEND kept "${folder}/${target}-${hash}.cpp")
        if(joined_options)
          set_source_files_properties("${folder}/${target}-${hash}.cpp" PROPERTIES COMPILE_OPTIONS "${joined_options}")
        endif()
      endif()
      set(group "")
      set(count 0)
    endif()
    if(alone OR NOT file MATCHES "\\.cpp$")
      list(APPEND kept "${file}")
    else()
      get_filename_component(file "${file}" ABSOLUTE)
      string(APPEND group "#include \"${file}\"\n")
      math(EXPR count "${count} + 1")
    endif()
  endforeach()
  list(REMOVE_ITEM kept end)
  set_target_properties(${target} PROPERTIES SOURCES "${kept}")
endfunction()

# headrace_cold(TARGET): for code that runs once or a few times per second; it compiles in a third of the time.
function(headrace_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
