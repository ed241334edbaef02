// Adds up the rows of every token, a token at a time while its sum is in cache.
#include <algorithm>

#include "cpu/call_shape.h"
#include "cpu/instruction_set.h"
#include "cpu/moe/moe_cpu.h"

namespace mixed_gemm {

void moe_combine_cpu(const MoeCombineProblem& p, const ParallelFor& parallel_for) {
  const cpu::CpuKernels& kernels = cpu::active_kernels();
  const int64_t element = cpu::element_bytes(p.element);
  const int64_t weight_row = p.choices * cpu::element_bytes(p.weight_type);
  const int64_t grain = cpu::CallShape::grain(2 * p.choices * p.k);
  parallel_for(0, p.tokens, grain, [&](int64_t t, int64_t last) {
    cpu::AlignedBuffer weights(p.choices), row(p.k), sum(p.k);
    for (; t < last; ++t) {
      const char* of_token = static_cast<const char*>(p.weights) + t * weight_row;
      kernels.to_float({p.weight_type, of_token, 0}, 1, p.choices, weights.data(), 0);
      std::fill(sum.data(), sum.data() + p.k, 0.f);
      for (int64_t j = 0; j < p.choices; ++j) {
        const int32_t position = p.positions[t * p.choices + j];
        if (!p.has_row(position)) continue;
        const char* from = static_cast<const char*>(p.rows) + position * p.row_stride * element;
        kernels.to_float({p.element, from, 0}, 1, p.k, row.data(), 0);
        kernels.add_multiple(row.data(), p.k, weights.data()[j], sum.data());
      }
      kernels.from_float(sum.data(), p.k, p.element, static_cast<char*>(p.d) + t * p.k * element);
    }
  });
}

}  // namespace mixed_gemm
