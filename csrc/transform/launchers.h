// The kernels that bring operands into another form, as plain functions: the interface of this
// folder. All return a cudaError_t and never synchronise.
#pragma once
#include "transform/args.h"

namespace mixed_gemm {

int launch_pack(const PackArgs& args);
int launch_unpack(const PackArgs& args);
int launch_repack_awq(const RepackArgs& args);
int launch_repack_gptq(const RepackArgs& args);
int launch_dequantize_awq(const AwqProblem& problem, void* stream);
int launch_dequantize(const DequantizeArgs& args);
int launch_copy_padded(const CopyPaddedArgs& args);
int launch_copy_rows(const CopyRowsArgs& args);
int launch_copy_images(const CopyImagesArgs& args);

}  // namespace mixed_gemm
