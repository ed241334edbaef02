// Launchers of the AWQ kernels, by element and row of kAwqConfigs.
#include "awq/awq_kernel.cuh"
#include "instantiations/awq_launchers.h"
#include "kernel/launch_kernel.cuh"

namespace mixed_gemm {
namespace {

template <typename Element, int kRow>
int launch(const AwqProblem& p, int split, void* stream) {
  using Gemm = AwqGemm<Element, kRow>;
  constexpr int kSmemBytes = sizeof(typename Gemm::SharedStorage);
  const AwqParams<Element> params{
      static_cast<const Element*>(p.a),
      p.a_stride,
      p.qweight,
      p.qzeros,
      static_cast<const Element*>(p.scales),
      static_cast<int>(p.m),
      static_cast<int>(p.n),
      static_cast<int>(p.k),
      cutlass::FastDivmod(static_cast<int>(p.group_size)),
      {nullptr, nullptr, static_cast<Element*>(p.d), static_cast<int>(p.n), Activation::kIdentity}};
  const auto blocks = static_cast<unsigned>(split);
  const dim3 grid(static_cast<unsigned>(ceil_div(p.n, Gemm::kN)),
                  static_cast<unsigned>(ceil_div(p.m, Gemm::kM)), blocks);
  return launch_kernel(awq_gemm_kernel<Element, kRow>, grid, Gemm::kThreads, kSmemBytes,
                       dim3(1, 1, blocks), stream, params);
}

template <typename Element>
constexpr int (*kLaunch[kNumAwqConfigs])(const AwqProblem&, int, void*) = {
    launch<Element, 0>, launch<Element, 1>, launch<Element, 2>, launch<Element, 3>};

}  // namespace

int launch_awq_gemm(const AwqProblem& problem, const AwqChoice& choice, void* stream) {
  const auto* table = problem.element == ElementType::kFloat16 ? kLaunch<cutlass::half_t>
                                                               : kLaunch<cutlass::bfloat16_t>;
  return table[choice.row](problem, choice.split, stream);
}

}  // namespace mixed_gemm
