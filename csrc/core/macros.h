// The only macro file: qualifiers that let one header serve g++, nvcc's host pass and device code.
#pragma once

#if defined(__CUDACC__)
#define MIXED_GEMM_HOST_DEVICE __host__ __device__ __forceinline__
#define MIXED_GEMM_UNROLL _Pragma("unroll")
#else
#define MIXED_GEMM_HOST_DEVICE inline
#define MIXED_GEMM_UNROLL
#endif
