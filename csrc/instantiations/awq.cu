// Launchers of the AWQ kernels, by element and row of kAwqConfigs.
#include "awq/awq_kernel.cuh"
#include "instantiations/awq_launchers.h"

namespace mixed_gemm {
namespace {

template <typename Element, int kRow>
int launch(const AwqProblem& p, int split, cudaStream_t stream) {
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
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(ceil_div(p.n, Gemm::kN)),
           static_cast<unsigned>(ceil_div(p.m, Gemm::kM)), static_cast<unsigned>(split));
  config.blockDim = dim3(Gemm::kThreads);
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = stream;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = static_cast<unsigned>(split);
  config.attrs = &cluster;
  config.numAttrs = split > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, awq_gemm_kernel<Element, kRow>, params);
}

template <typename Element>
constexpr int (*kLaunch[kNumAwqConfigs])(const AwqProblem&, int, cudaStream_t) = {
    launch<Element, 0>, launch<Element, 1>, launch<Element, 2>, launch<Element, 3>};

}  // namespace

int launch_awq_gemm(const AwqProblem& problem, const AwqChoice& choice, void* stream) {
  const auto* table = problem.element == ElementType::kFloat16 ? kLaunch<cutlass::half_t>
                                                               : kLaunch<cutlass::bfloat16_t>;
  return table[choice.row](problem, choice.split, static_cast<cudaStream_t>(stream));
}

}  // namespace mixed_gemm
