#include "grid/gemm_args.h"

#include "core/mutant.h"

namespace mixed_gemm {

GemmArgs gemm_args_of(const GemmProblem& p, int64_t scale_stride, void* stream) {
  GemmArgs args;
  args.m = static_cast<int>(p.m);
  args.n = static_cast<int>(p.n);
  args.k = static_cast<int>(round_up(p.k, kGemmVector));
  args.a = p.a;
  args.a_stride = p.m == 1 ? 0 : MIXED_GEMM_MUTATED(LeadingDimension) ? p.k : p.a_stride;
  args.b_packed = p.b_packed;
  args.scales = p.scales;
  args.zeros = p.zeros;
  args.scale_stride = scale_stride;
  args.groups = static_cast<int>(num_groups(p));
  // One group covers all of K, also where K was rounded up.
  args.group_size = args.groups <= 1 && !MIXED_GEMM_MUTATED(RowsOfPaddedK)
                        ? args.k
                        : static_cast<int>(p.scheme.group_size);
  args.zero_mode = p.scheme.zero_mode;
  args.bias = p.bias;
  args.activation = p.activation;
  args.d = p.d;
  args.stream = stream;
  return args;
}

}  // namespace mixed_gemm
