// Launchers of the AWQ kernels, by element and row of kAwqConfigs.
#include "awq/awq_kernel.cuh"
#include "instantiations/awq_launchers.h"

namespace mixed_gemm {
namespace {

template <typename Element, int kRow>
int launch(const AwqProblem& p, void* stream) {
  using Gemm = AwqGemm<Element, kRow>;
  constexpr int kSmemBytes = sizeof(typename Gemm::SharedStorage);
  if (kSmemBytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(
        awq_gemm_kernel<Element, kRow>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    if (error != cudaSuccess) return error;
  }
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
  const dim3 grid(static_cast<unsigned>(ceil_div(p.n, Gemm::kN)),
                  static_cast<unsigned>(ceil_div(p.m, Gemm::kM)));
  awq_gemm_kernel<Element, kRow>
      <<<grid, Gemm::kThreads, kSmemBytes, static_cast<cudaStream_t>(stream)>>>(params);
  return cudaGetLastError();
}

template <typename Element>
constexpr int (*kLaunch[kNumAwqConfigs])(const AwqProblem&, void*) = {
    launch<Element, 0>, launch<Element, 1>, launch<Element, 2>};

}  // namespace

int launch_awq_gemm(const AwqProblem& problem, int row, void* stream) {
  return problem.element == ElementType::kFloat16
             ? kLaunch<cutlass::half_t>[row](problem, stream)
             : kLaunch<cutlass::bfloat16_t>[row](problem, stream);
}

}  // namespace mixed_gemm
