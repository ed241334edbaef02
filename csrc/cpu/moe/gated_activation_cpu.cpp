// Gates the rows of a feed-forward layer, a row at a time.
#include "cpu/call_shape.h"
#include "cpu/instruction_set.h"
#include "cpu/moe/moe_cpu.h"

namespace mixed_gemm {

void gated_activation_cpu(const GatedActivationProblem& p, const ParallelFor& parallel_for) {
  constexpr int64_t kWork = 8;  // multiplications that take as long as one exponential
  const cpu::CpuKernels& kernels = cpu::active_kernels();
  const int64_t element = cpu::element_bytes(p.element);
  parallel_for(0, p.m, cpu::CallShape::grain(kWork * p.inner), [&](int64_t i, int64_t last) {
    cpu::AlignedBuffer row(2 * p.inner);
    float *gate = row.data(), *up = row.data() + p.inner;
    for (; i < last; ++i) {
      const char* from = static_cast<const char*>(p.a) + i * p.a_stride * element;
      kernels.to_float({p.element, from, 0}, 1, 2 * p.inner, gate, 0);
      kernels.gate_row(p.gate, gate, up, p.inner);
      kernels.from_float(gate, p.inner, p.element, static_cast<char*>(p.d) + i * p.inner * element);
    }
  });
}

}  // namespace mixed_gemm
