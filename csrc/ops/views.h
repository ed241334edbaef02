// Tensors and dtypes of torch as the rules of a contract look at them.
#pragma once
#include "contract/given.h"
#include "ops/torch_stable.h"

namespace mixed_gemm {

void look_at(AtenTensorHandle tensor, contract::View& view);
void set_dtype(contract::View& view, int32_t code);
int32_t code_of(contract::Dtype dtype);  // torch's number

}  // namespace mixed_gemm
