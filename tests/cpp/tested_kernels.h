// The kernel tables that tests of the CPU run: the supported ones, and those with emulated
// instructions where the real ones are missing.
#pragma once
#include <algorithm>
#include <vector>

#include "cpu/instruction_set.h"
#if defined(__x86_64__)
#include "emulated_amx_cpu.h"
#include "emulated_bf16_cpu.h"
#endif

namespace mixed_gemm::test {

inline std::vector<const cpu::CpuKernels*> tested_kernels() {
  auto tested = cpu::supported_kernels();
#if defined(__x86_64__)
  const auto none_has = [&](auto member) {
    return std::none_of(tested.begin(), tested.end(),
                        [&](const auto* kernels) { return kernels->*member != nullptr; });
  };
  const bool avx512 = tested.back()->lanes == 16;
  if (avx512 && none_has(&cpu::CpuKernels::bf16_pairs)) tested.push_back(&emulated_bf16_kernels());
  if (avx512 && none_has(&cpu::CpuKernels::tiles)) tested.push_back(&emulated_amx_kernels());
#endif
  return tested;
}

}  // namespace mixed_gemm::test
