// The quantizers of activations: places of their arguments and results, and a checked call as plain
// data, with the results made. The problem points into tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/quantize.h"

namespace mixed_gemm::quantize {

QuantizePerTokenProblem per_token(Call& call);
QuantizePerTensorProblem per_tensor(Call& call);
QuantizeFloat8Problem to_float8(Call& call);

}  // namespace mixed_gemm::quantize
