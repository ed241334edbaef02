// A mistake that a build of tools/mutation/source.py makes when $MIXED_GEMM_MUTANT names it:
// MUTATED(Name) is true then. core/mutant_list.h is written beside this file.
#pragma once

namespace mixed_gemm {

enum class Mutant : int {
  kNone,
#define X(name) k##name,
#include "core/mutant_list.h"
#undef X
};

// A variable and no function: cpu/vector_kernels.h says why.
extern const int kActiveMutant;

// A .cu file has its copy of it in constant memory, which prepare_mutant() fills on the current
// device. Returns a cudaError_t.
using SetMutant = int (*)(int mutant);
bool register_mutant_of_file(SetMutant set);
int prepare_mutant();

#if defined(__CUDACC__)
namespace {
__constant__ int mutant_of_file;
[[maybe_unused]] const bool kMutantIsRegistered = register_mutant_of_file([](int mutant) {
  return static_cast<int>(cudaMemcpyToSymbol(mutant_of_file, &mutant, sizeof(mutant)));
});
}  // namespace
#endif

}  // namespace mixed_gemm

#if defined(__CUDA_ARCH__)
#define MUTATED(name) \
  (::mixed_gemm::mutant_of_file == static_cast<int>(::mixed_gemm::Mutant::k##name))
#else
#define MUTATED(name) \
  (::mixed_gemm::kActiveMutant == static_cast<int>(::mixed_gemm::Mutant::k##name))
#endif
