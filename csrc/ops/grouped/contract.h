// The products whose rows belong to experts: places of their arguments, and a checked call as plain
// data.
#pragma once
#include "ops/call.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm::grouped {

// The arguments that both products begin with.
enum Place : int { kA, kPacked, kScales, kOffs };

namespace integers {  // of grouped_fpA_intB_gemm, and the last of grouped_fpA_intB_gemm_config
enum Place : int { kZeros = kOffs + 1, kBias, kBits, kGroupSize, kZeroMode, kActivation, kConfig };
}
namespace floats {  // of grouped_fpA_fpB_gemm, and the last of grouped_fpA_fpB_gemm_config
enum Place : int { kFactor = kOffs + 1, kBias, kWeightName, kGroupSize, kActivation, kConfig };
}

// The result is made; the problem points into tensors that the call owns. On a CPU offsets that are
// none are refused.
GroupedGemmProblem integer_problem(Call& call);
GroupedGemmProblem float_problem(Call& call);

}  // namespace mixed_gemm::grouped
