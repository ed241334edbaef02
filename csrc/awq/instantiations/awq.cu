// Launchers of the AWQ kernels, by element, kind of groups and row of kAwqConfigs.
#include <array>
#include <utility>

#include "awq/kernel.cuh"
#include "awq/launchers.h"
#include "grid/launch.cuh"

namespace mixed_gemm {
namespace {

template <typename Config>
int launch(const AwqProblem& p, const AwqChoice& choice, void* stream) {
  using Element = typename Config::Element;
  const int unit = Config::kFine ? 8 : kAwqUnitK;
  const AwqParams<Element> params{
      static_cast<const Element*>(p.a),
      static_cast<int>(p.a_stride),
      p.qweight,
      p.qzeros,
      static_cast<const Element*>(p.scales),
      static_cast<int>(p.m),
      static_cast<int>(p.n),
      static_cast<int>(p.k),
      cutlass::FastDivmod(static_cast<int>(ceil_div(p.group_size, unit))),
      static_cast<Element*>(p.d)};
  KernelLaunch shape;
  const auto blocks = static_cast<unsigned>(choice.split);
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, Config::kN)),
                    static_cast<unsigned>(ceil_div(p.m, Config::kM)), blocks);
  shape.threads = 32 * choice.warps;
  shape.stream = stream;
  shape.smem_bytes = AwqReduction<Config>::smem_bytes(choice.warps, choice.split);
  shape.cluster = dim3(1, 1, blocks);
  shape.uses_pdl = choice.pdl;
  return launch_kernel(awq_gemm_kernel<Config>, shape, params);
}

using Launch = int (*)(const AwqProblem&, const AwqChoice&, void*);

template <typename Element, bool kFine, int... kRows>
constexpr std::array<Launch, kNumAwqConfigs> rows(std::integer_sequence<int, kRows...>) {
  return {launch<AwqGemmConfig<Element, kRows, kFine>>...};
}

template <typename Element>
Launch launcher(int row, bool fine) {
  using Rows = std::make_integer_sequence<int, kNumAwqConfigs>;
  static constexpr std::array<Launch, kNumAwqConfigs> kCoarse = rows<Element, false>(Rows()),
                                                      kFine = rows<Element, true>(Rows());
  return (fine ? kFine : kCoarse)[row];
}

}  // namespace

int launch_awq_gemm(const AwqProblem& p, const AwqChoice& choice, void* stream) {
  const bool fine = awq_is_fine(p.group_size, p.k);
  const auto launch = p.element == ElementType::kFloat16
                          ? launcher<cutlass::half_t>(choice.row, fine)
                          : launcher<cutlass::bfloat16_t>(choice.row, fine);
  return launch(p, choice, stream);
}

}  // namespace mixed_gemm
