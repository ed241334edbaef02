// The walk over the rules of a contract.
#pragma once
#include "contract/contract.h"

namespace mixed_gemm::contract {

// Says why the call is refused. If nothing is said, the symbols are bound and the names of choices
// are numbers. Tensors and devices are checked first, then storages, then the rules in order.
std::optional<Refusal> check(const Contract& contract, Given& given);

}  // namespace mixed_gemm::contract
