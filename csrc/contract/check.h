// The walk over the rules of a contract.
#pragma once
#include "contract/contract.h"

namespace mixed_gemm::contract {

// Why the call is refused, or nothing; then the symbols are bound and the names of choices are
// numbers. Tensors and their devices come first, then storages, then the rules in their order.
std::optional<Refusal> check(const Contract& contract, Given& given);

}  // namespace mixed_gemm::contract
