// Launchers of the quantizers of activations.
#include <algorithm>

#include "dequant/with_element.cuh"
#include "transform/quantize.cuh"
#include "transform/quantize_launchers.h"

namespace mixed_gemm {
namespace {

bool starts_on(const void* p, int64_t stride_bytes, int64_t rows, int bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0 && (stride_bytes % bytes == 0 || rows == 1);
}

struct Alignment {
  bool a, q;
};
Alignment alignment_of(const QuantizeProblem& p) {
  const int element = p.element == ElementType::kFloat32 ? 4 : 2;
  return {starts_on(p.a, p.a_stride * element, p.m, 16), starts_on(p.q, p.k, p.m, 8)};
}

}  // namespace

int launch_quantize_per_token(const QuantizePerTokenProblem& p, void* stream) {
  const Alignment aligned = alignment_of(p);
  // Two vectors a thread, up to K = 8192; rows up to 16384 stay in registers.
  const auto threads = static_cast<unsigned>(std::clamp<int64_t>(
      round_up(ceil_div(p.k, 2 * kQuantizeVector), 32), 32, kMaxQuantizeThreads));
  return with_element(p.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    const auto kernel = p.azp == nullptr ? quantize_per_token_kernel<Element, true>
                                         : quantize_per_token_kernel<Element, false>;
    kernel<<<static_cast<unsigned>(p.m), threads, 0, static_cast<cudaStream_t>(stream)>>>(
        p, aligned.a, aligned.q);
    return static_cast<int>(cudaGetLastError());
  });
}

int launch_quantize_per_tensor(const QuantizePerTensorProblem& p, void* stream) {
  constexpr int kThreads = 128;
  const Alignment aligned = alignment_of(p);
  const dim3 grid(static_cast<unsigned>(ceil_div(p.k, kThreads * kQuantizeVector)),
                  static_cast<unsigned>(std::min<int64_t>(p.m, 65535)));
  return with_element(p.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    quantize_per_tensor_kernel<Element>
        <<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, aligned.a, aligned.q);
    return static_cast<int>(cudaGetLastError());
  });
}

}  // namespace mixed_gemm
