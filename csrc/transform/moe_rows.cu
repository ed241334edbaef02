// The launchers of what adds up the rows of experts, and of the gated activation.
#include <algorithm>

#include "dequant/with_element.cuh"
#include "grid/launch.cuh"
#include "transform/combine_rows.cuh"
#include "transform/gate_rows.cuh"
#include "transform/moe_launchers.h"

namespace mixed_gemm {
namespace {

int bytes_of(ElementType element) { return element == ElementType::kFloat32 ? 4 : 2; }

// Whether every row lies on 16 bytes; offset: elements from its beginning on.
bool rows_lie_on_vectors(const void* first, int64_t stride, int64_t offset, int64_t rows,
                         ElementType element) {
  const int64_t bytes = bytes_of(element);
  return reinterpret_cast<uintptr_t>(first) % 16 == 0 && offset * bytes % 16 == 0 &&
         (rows <= 1 || stride * bytes % 16 == 0);
}

// A thread for each vector of a row, and blocks for rows.
KernelLaunch launch_over_rows(int64_t rows, int64_t columns, const Pdl& pdl, void* stream) {
  constexpr int64_t kMostThreads = 128;
  const int64_t vectors = ceil_div(columns, kElementVector);
  KernelLaunch shape;
  shape.stream = stream;
  shape.uses_pdl = pdl.sms > 0;
  shape.threads = static_cast<int>(std::min(round_up(vectors, 32), kMostThreads));
  shape.grid = dim3(static_cast<unsigned>(ceil_div(vectors, shape.threads)),
                    static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  return shape;
}

template <typename Element, typename Weight>
int launch_combine(bool aligned, const KernelLaunch& shape, const CombineRowsParams& params) {
  return aligned ? launch_kernel(combine_rows_kernel<Element, Weight, true>, shape, params)
                 : launch_kernel(combine_rows_kernel<Element, Weight, false>, shape, params);
}

}  // namespace

int launch_moe_combine(const MoeCombineProblem& p, const Pdl& pdl, void* stream) {
  const KernelLaunch shape = launch_over_rows(p.tokens, p.k, pdl, stream);
  const CombineRowsParams params{p, rows_lie_on_vectors(p.d, p.k, 0, p.tokens, p.element)};
  const bool aligned = p.k % kElementVector == 0 &&
                       rows_lie_on_vectors(p.rows, p.row_stride, 0, p.row_count, p.element);
  return with_element(p.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    return p.weight_type == ElementType::kFloat32
               ? launch_combine<Element, float>(aligned, shape, params)
               : launch_combine<Element, Element>(aligned, shape, params);
  });
}

int launch_gated_activation(const GatedActivationProblem& p, const Pdl& pdl, void* stream) {
  const KernelLaunch shape = launch_over_rows(p.m, p.inner, pdl, stream);
  const GateRowsParams params{p, rows_lie_on_vectors(p.a, p.a_stride, p.inner, p.m, p.element),
                              rows_lie_on_vectors(p.d, p.inner, 0, p.m, p.element)};
  return with_element(p.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    return launch_kernel(gate_rows_kernel<Element>, shape, params);
  });
}

}  // namespace mixed_gemm
