#include "block_gemm/run.h"

#include <algorithm>

#include "block_gemm/family.h"
#include "block_gemm/launchers.h"
#include "grid/device_query.h"
#include "grid/run_split.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kVectorBytes = 16;  // cp.async moves 16 bytes

// Whether cp.async reads B as it is: rows start on 16 bytes, and blocks need no padding.
bool reads_in_place(const BlockGemmProblem& p, const BlockForm& form) {
  return reinterpret_cast<uintptr_t>(p.b) % kVectorBytes == 0 &&
         (p.ldb % kVectorBytes == 0 || p.n == 1) && form.k == p.k;
}

template <typename T>
T* allocate_array(const Allocate& allocate, int64_t count) {
  return static_cast<T*>(allocate(std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(T))));
}

BlockPrepareArgs prepare_args(const BlockGemmProblem& p) {
  BlockPrepareArgs args;
  args.problem = p;
  args.operands.form = BlockForm::of(p);
  args.operands.a_stride = block_row_stride(p);
  return args;
}

}  // namespace

int64_t block_row_stride(const BlockGemmProblem& problem) {
  return std::max(kVectorBytes, round_up(BlockForm::of(problem).k, kVectorBytes));
}

Status quantize_blocks(const BlockGemmProblem& problem, int8_t* qa, RowScale* rows, void* stream) {
  BlockPrepareArgs prepare = prepare_args(problem);
  prepare.operands.a = qa;
  prepare.operands.rows = rows;
  return cuda_status(launch_block_prepare(prepare, stream), "rounding the activations");
}

Status BlockGemm::run(const Choice& c, const BlockGemmProblem& p, const RunContext& context) {
  const Allocate& allocate = context.allocate;
  BlockPrepareArgs prepare = prepare_args(p);
  BlockOperands& operands = prepare.operands;
  const BlockForm& form = operands.form;
  operands.a = allocate_array<int8_t>(allocate, p.m * operands.a_stride);
  operands.rows = allocate_array<RowScale>(allocate, form.blocks * p.m);
  const int mode = form.mode(p.b_sums != nullptr);
  if (kBlockModes[mode].sums_given) {
    operands.summed_columns = allocate_array<SummedColumnScale>(allocate, form.blocks * p.n);
  } else {
    operands.columns = allocate_array<ColumnScale>(allocate, form.blocks * p.n);
  }
  operands.b = p.b;
  operands.b_stride = p.n == 1 ? 0 : p.ldb;
  if (!reads_in_place(p, form)) {
    operands.b_stride = operands.a_stride;
    operands.b = operands.b_copy = allocate_array<int8_t>(allocate, p.n * operands.b_stride);
  }
  Work work;
  Status status =
      share_out(c, kBlockTileConfigs[c.row], p.m, p.n, form.split_parts(), context, work,
                /*zero_flags=*/false);
  if (!status.ok()) return status;
  prepare.flags = work.flags;
  prepare.flag_count = work.flags == nullptr ? 0 : work.workers;
  status = cuda_status(launch_block_prepare(prepare, work.stream), "rounding the activations");
  if (!status.ok()) return status;
  return cuda_status(block_gemm_launchers(mode)[c.row](p, operands, work), "launching the GEMM");
}

}  // namespace mixed_gemm
