#include "cpu/instruction_set.h"

#include <cstdlib>
#include <stdexcept>
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#include "cpu/gemm/gemm_cpu.h"

namespace mixed_gemm::cpu {
namespace {

struct InstructionSet {
  const char* name;
  bool (*supported)();
  const CpuKernels& (*kernels)();
};

#if defined(__x86_64__)
// The compiler's table also asks the operating system (XGETBV) whether it saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512_bf16() { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }

// Linux grants the tile registers on request only, to the whole process, and refuses where it
// cannot save them (Documentation/arch/x86/xstate.rst).
bool has_avx512_amx() {
#if defined(__linux__)
  constexpr unsigned kNeeded = 1u << 24 | 1u << 22 | 1u << 25;  // tiles, bf16, int8: CPUID 7.0, EDX
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // Every processor that has tiles has these two, which float8 takes beside them.
  const bool beside = __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
  return has_avx512_vnni() && beside && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
         (edx & kNeeded) == kNeeded && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

// Slowest first.
constexpr InstructionSet kInstructionSets[] = {
    {"portable", [] { return true; }, portable_kernels},
#if defined(__x86_64__)
    {"avx2", has_avx2, avx2_kernels},
    {"avx512", has_avx512, avx512_kernels},
    {"avx512_vnni", has_avx512_vnni, avx512_vnni_kernels},
    {"avx512_bf16", has_avx512_bf16, avx512_bf16_kernels},
    {"avx512_amx", has_avx512_amx, avx512_amx_kernels},
#endif
};

}  // namespace

std::vector<const CpuKernels*> supported_kernels() {
  std::vector<const CpuKernels*> kernels;
  for (const auto& set : kInstructionSets) {
    if (set.supported()) kernels.push_back(&set.kernels());
  }
  return kernels;
}

const CpuKernels& select_kernels(const std::string& limit) {
  const CpuKernels* best = nullptr;
  for (const auto& set : kInstructionSets) {
    if (set.supported()) best = &set.kernels();
    if (limit == set.name) return *best;
  }
  if (!limit.empty()) {
    std::string names;
    for (const auto& set : kInstructionSets)
      names += std::string(names.empty() ? "" : ", ") + set.name;
    throw std::invalid_argument("mixed_gemm: MIXED_GEMM_CPU must be one of " + names + ", got " +
                                limit);
  }
  return *best;
}

const CpuKernels& active_kernels() {
  static const CpuKernels* const kernels = [] {
    const char* limit = std::getenv("MIXED_GEMM_CPU");
    return &select_kernels(limit ? limit : "");
  }();
  return *kernels;
}

const CpuKernels& active_kernels(WeightType weight) {
  const CpuKernels& kernels = active_kernels();
  return kernels.decodes(weight) ? kernels : portable_kernels();
}

}  // namespace mixed_gemm::cpu

namespace mixed_gemm {

std::string cpu_instruction_set() { return cpu::active_kernels().name; }

}  // namespace mixed_gemm
