// Runs a choice on the current device.
#pragma once
#include "core/choice.h"
#include "core/status.h"
#include "grid/run_context.h"

namespace mixed_gemm {

// problem: checked, M and N at least 1. choice: one that why_not accepts.
template <typename Problem>
Status run(const Choice& choice, const Problem& problem, const RunContext& context);

}  // namespace mixed_gemm
