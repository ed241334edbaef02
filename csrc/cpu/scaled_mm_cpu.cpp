#include "cpu/scaled_mm_cpu.h"

#include <algorithm>
#include <vector>

#include "core/float8.h"
#include "cpu/instruction_set.h"
#include "cpu/scaled_epilogue_cpu.h"

namespace mixed_gemm {
namespace cpu {
namespace {

void int8_row(const ScaledMmProblem& p, int64_t row, int32_t* sums) {
  const auto* a = static_cast<const int8_t*>(p.a) + row * p.lda;
  for (int64_t j = 0; j < p.n; ++j) {
    const auto* b = static_cast<const int8_t*>(p.b) + j * p.ldb;
    int32_t sum = 0;
    for (int64_t k = 0; k < p.k; ++k) sum += int32_t{a[k]} * b[k];
    sums[j] = sum;
  }
}

void float8_row(const ScaledMmProblem& p, int64_t row, float* sums) {
  const auto* a = static_cast<const uint8_t*>(p.a) + row * p.lda;
  for (int64_t j = 0; j < p.n; ++j) {
    const auto* b = static_cast<const uint8_t*>(p.b) + j * p.ldb;
    float sum = 0;
    for (int64_t k = 0; k < p.k; ++k) sum += decode_e4m3(a[k]) * decode_e4m3(b[k]);
    sums[j] = sum;
  }
}

template <typename Sum>
void all_rows(const ScaledMmProblem& p, void (*row_sums)(const ScaledMmProblem&, int64_t, Sum*),
              const ParallelFor& parallel_for) {
  const ScaledEpilogueCpu epilogue(active_kernels(), p);
  parallel_for(0, p.m, CallShape::grain(p.n * p.k), [&](int64_t begin, int64_t end) {
    std::vector<Sum> sums(p.n);
    for (int64_t row = begin; row < end; ++row) {
      row_sums(p, row, sums.data());
      epilogue.finish(sums.data(), p.n, row, 1, 0, p.n);
    }
  });
}

}  // namespace
}  // namespace cpu

void scaled_mm_cpu(const ScaledMmProblem& problem, const ParallelFor& parallel_for) {
  if (problem.m == 0 || problem.n == 0) return;
  if (problem.operand == OperandType::kInt8) {
    cpu::all_rows<int32_t>(problem, cpu::int8_row, parallel_for);
  } else {
    cpu::all_rows<float>(problem, cpu::float8_row, parallel_for);
  }
}

}  // namespace mixed_gemm
