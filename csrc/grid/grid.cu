#include "grid/grid.h"

#include <algorithm>

#include "dequant/with_element.cuh"
#include "grid/launch.cuh"
#include "grid/reduce.cuh"
#include "grid/zero_flags.cuh"

namespace mixed_gemm {

namespace {

template <typename Element, typename Factor>
int launch_reduction(const ReduceArgs& a, const Factor* columns) {
  const ReducedOutput& o = a.output;
  const OutputParams<Element, Factor> output{columns, static_cast<const Element*>(o.bias),
                                             static_cast<Element*>(o.d), static_cast<int>(o.n),
                                             o.activation};
  constexpr int kReduceThreads = 128;
  constexpr int64_t kMostRows = 65535;  // of a grid
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(o.n, kReduceThreads * kOutputsPerAccess)),
                    static_cast<unsigned>(std::min(o.m, kMostRows)));
  shape.threads = kReduceThreads;
  shape.stream = a.stream;
  shape.even = a.pdl;
  const Reduction<Element, Factor> reduction{output, a.partials, a.partial_stride, a.slices, o.m};
  return launch_kernel(splitk_reduce_kernel<Element, Factor>, shape, reduction);
}

}  // namespace

int launch_reduce_partials(const ReduceArgs& a) {
  const ReducedOutput& o = a.output;
  return with_element(o.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    if (o.columns.factor != nullptr) return launch_reduction<Element>(a, o.columns.factor);
    return launch_reduction<Element>(a, static_cast<const Element*>(o.columns.scales));
  });
}

int launch_zero_flags(const ZeroFlagsArgs& a) {
  KernelLaunch shape;
  shape.threads = 256;
  shape.stream = a.stream;
  shape.uses_pdl = a.pdl.sms > 0;
  return launch_kernel(zero_flags_kernel, shape, a);
}

}  // namespace mixed_gemm
