if(TARGET headrace_gpu)
  headrace_test(unit/gpu_copy_engine_test.cpp headrace::gpu)
  if(TARGET headrace_session)
    headrace_test(unit/gpu_batch_test.cpp headrace::gpu headrace::session headrace::config)
  endif()
  if(TARGET CUDA::cudart_static)  # label gpu: run only by name (./run test gpu), on a machine with a GPU
    headrace_test(gpu/cuda_copy_test.cpp headrace::gpu CUDA::cudart_static)
  endif()
endif()
