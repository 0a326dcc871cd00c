# The transform kernel, where the toolkit has its compiler, too; else device transforms are the host twin's alone.
set(HEADRACE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs that the kernels are built for; of the last one PTX, too, for newer ones")
set(has_cuda_compiler OFF)
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
    set(has_cuda_compiler ON)
  endif()
endif()

if(has_cuda_compiler)
  # Objects, so that what links the library need not know of CUDA's compiler.
  add_library(headrace_gpu_kernels OBJECT cuda/transform_kernels.cu)
  set_target_properties(headrace_gpu_kernels PROPERTIES CUDA_ARCHITECTURES "${HEADRACE_CUDA_ARCHITECTURES}" CUDA_STANDARD 17
                        CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(headrace_gpu_kernels PRIVATE "${headrace_SOURCE_DIR}" "${headrace_SOURCE_DIR}/clientlib/include")
  # Exactness, as headrace_flags has it: no contraction into fused multiply-add.
  target_compile_options(headrace_gpu_kernels PRIVATE -fmad=false --prec-div=true --prec-sqrt=true --ftz=false
                         -Xcompiler=-ffp-contract=off,-Wall,-Wextra,-Wno-unknown-pragmas
                         $<$<BOOL:${HEADRACE_WERROR}>:--Werror=all-warnings>)
  target_sources(headrace_gpu PRIVATE cuda/cuda_transform.cpp $<TARGET_OBJECTS:headrace_gpu_kernels>)
else()
  message(STATUS "headrace::gpu: no transforms on CUDA devices (no CUDA compiler)")
  target_sources(headrace_gpu PRIVATE host/no_cuda_transform.cpp)
endif()
