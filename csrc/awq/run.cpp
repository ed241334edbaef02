#include "awq/family.h"

#include <limits>

#include "awq/launchers.h"
#include "grid/device_query.h"
#include "grid/run_context.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

// Makes rows of activations start on 16 bytes, no further from each other than an int counts.
Status stage_rows(AwqProblem& p, const RunContext& context) {
  const bool rows_aligned = p.a_stride % 8 == 0 && p.a_stride <= std::numeric_limits<int>::max();
  if (reinterpret_cast<uintptr_t>(p.a) % 16 == 0 && (p.m == 1 || rows_aligned)) return Status();
  CopyPaddedArgs copy;
  copy.element = p.element;
  copy.src = p.a;
  copy.src_stride = p.a_stride;
  copy.rows = p.m;
  copy.columns = copy.dst_columns = p.k;
  copy.dst = context.allocate(p.m * p.k * 2);
  copy.stream = context.stream;
  p.a = copy.dst;
  p.a_stride = p.k;
  return cuda_status(launch_copy_padded(copy), "copying activations");
}

// Whether words may be read two at a time.
bool reads_pairs(const AwqProblem& p) {
  const auto at_pairs = [](const void* words) {
    return reinterpret_cast<uintptr_t>(words) % 8 == 0;
  };
  return p.n % 16 == 0 && at_pairs(p.qweight) && at_pairs(p.qzeros);
}

}  // namespace

bool Awq::takes(const AwqProblem& p) {
  const bool small = p.m <= kMaxAwqRows && p.n <= kMaxAwqExtent && p.k <= kMaxAwqExtent &&
                     p.n * p.k <= kMaxAwqWeights;
  return small && p.k % 8 == 0 && p.element != ElementType::kFloat32;
}

Status Awq::run(const AwqProblem& problem, const RunContext& context) {
  AwqProblem p = problem;
  const Status status = stage_rows(p, context);
  if (!status.ok()) return status;
  const AwqChoice choice = select_awq(p.m, p.n, p.k, awq_is_fine(p.group_size, p.k), reads_pairs(p),
                                      context.device.sm, context.device.sm_count);
  return cuda_status(launch_awq_gemm(p, choice, context.stream), "launching the GEMM");
}

}  // namespace mixed_gemm
