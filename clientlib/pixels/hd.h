// Macros for code that is compiled for both host and device, so that both compute the same bytes.
#pragma once

#ifdef __CUDACC__
#define HEADRACE_HD __host__ __device__
#define HEADRACE_UNROLL _Pragma("unroll")
#define HEADRACE_ROLLED _Pragma("unroll 1")
// Before a template that calls functions of its argument, which may exist on the device only.
#define HEADRACE_EXEC_CHECK_OFF _Pragma("nv_exec_check_disable")
#else
#define HEADRACE_HD
#define HEADRACE_UNROLL
#define HEADRACE_ROLLED
#define HEADRACE_EXEC_CHECK_OFF
#endif
