# Finds the CUDA toolkit. Only folders named cuda use it. HEADRACE_KERNELS: whether .cu files are compiled.
option(HEADRACE_CUDA "Build for CUDA if CMake finds the toolkit" ON)
set(HEADRACE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs that the kernels are built for; the last one also as PTX, for newer GPUs")
set(HEADRACE_KERNELS OFF)
if(HEADRACE_CUDA)
  find_package(CUDAToolkit QUIET GLOBAL)
endif()
if(HEADRACE_CUDA AND CUDAToolkit_FOUND)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(HEADRACE_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${HEADRACE_CCACHE})
    endif()
    enable_language(CUDA)
    set(HEADRACE_KERNELS ON)
  endif()
endif()

# headrace_kernels(NAME FILE...): an object library, so that its users need no CUDA compiler. C++17, the newest that CUDA 12 supports fully.
function(headrace_kernels name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${HEADRACE_CUDA_ARCHITECTURES}" CUDA_STANDARD 17
                        CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE "${headrace_SOURCE_DIR}" "${headrace_SOURCE_DIR}/clientlib/include")
  # Exact results, as with headrace_flags: no contraction into fused multiply-add. Compressed, because the GPU kit is limited to 50 MB.
  target_compile_options(${name} PRIVATE -fmad=false --prec-div=true --prec-sqrt=true --ftz=false -Xfatbin=-compress-all
                         -Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wno-unknown-pragmas
                         $<$<BOOL:${HEADRACE_WERROR}>:--Werror=all-warnings>)
endfunction()
