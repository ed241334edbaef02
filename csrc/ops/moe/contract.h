// The ops around the experts of a mixture: places of their arguments and results, and a checked
// call as plain data, with the results made. The problem points into tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/gated_activation.h"
#include "problem/moe.h"

namespace mixed_gemm::moe {

// On a CPU these two read the ids and the positions, and refuse what is out of range.
MoePermuteProblem permuted(Call& call);
MoeCombineProblem combined(Call& call);
GatedActivationProblem gated_rows(Call& call);

}  // namespace mixed_gemm::moe
