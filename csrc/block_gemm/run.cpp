#include "block_gemm/run.h"

#include <algorithm>

#include "block_gemm/family.h"
#include "block_gemm/launchers.h"
#include "grid/device_query.h"
#include "grid/run_split.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kVectorBytes = 16;  // cp.async moves 16 bytes

// cp.async reads B as it is: rows that start on 16 bytes, blocks that need no padding.
bool reads_in_place(const BlockGemmProblem& p, const BlockForm& form) {
  return reinterpret_cast<uintptr_t>(p.b) % kVectorBytes == 0 &&
         (p.ldb % kVectorBytes == 0 || p.n == 1) && form.k == p.k;
}

template <typename T>
T* allocate_array(const Allocate& allocate, int64_t count) {
  return static_cast<T*>(allocate(std::max<int64_t>(count, 1) * static_cast<int64_t>(sizeof(T))));
}

BlockPrepareArgs prepare_args(const BlockGemmProblem& p, void* stream) {
  BlockPrepareArgs args;
  args.problem = p;
  args.form = BlockForm::of(p);
  args.qa_stride = block_row_stride(p);
  args.stream = stream;
  return args;
}

}  // namespace

int64_t block_row_stride(const BlockGemmProblem& problem) {
  return std::max(kVectorBytes, round_up(BlockForm::of(problem).k, kVectorBytes));
}

Status quantize_blocks(const BlockGemmProblem& problem, int8_t* qa, RowScale* rows, void* stream) {
  BlockPrepareArgs prepare = prepare_args(problem, stream);
  prepare.qa = qa;
  prepare.rows = rows;
  return cuda_status(launch_block_prepare(prepare), "rounding the activations");
}

Status BlockGemm::run(const Choice& c, const BlockGemmProblem& p, const RunContext& context) {
  const Allocate& allocate = context.allocate;
  void* stream = context.stream;
  BlockPrepareArgs prepare = prepare_args(p, stream);
  const BlockForm& form = prepare.form;
  prepare.qa = allocate_array<int8_t>(allocate, p.m * prepare.qa_stride);
  prepare.rows = allocate_array<RowScale>(allocate, form.blocks * p.m);
  prepare.columns = allocate_array<ColumnScale>(allocate, form.blocks * p.n);

  BlockGemmArgs gemm;
  gemm.m = static_cast<int>(p.m);
  gemm.n = static_cast<int>(p.n);
  gemm.form = form;
  gemm.a = prepare.qa;
  gemm.a_stride = prepare.qa_stride;
  gemm.b = p.b;
  gemm.b_stride = p.n == 1 ? 0 : p.ldb;
  gemm.rows = prepare.rows;
  gemm.columns = prepare.columns;
  gemm.element = p.element;
  gemm.bias = p.bias;
  gemm.activation = p.activation;
  gemm.d = p.d;
  gemm.stream = stream;
  if (!reads_in_place(p, form)) {
    gemm.b_stride = prepare.b_copy_stride = prepare.qa_stride;
    prepare.b_copy = allocate_array<int8_t>(allocate, p.n * prepare.b_copy_stride);
    gemm.b = prepare.b_copy;
  }
  // The first launch zeroes the flags.
  Shares shares;
  Status status = share_out(c, kBlockTileConfigs[c.row], p.m, p.n, form.split_parts(), context,
                            shares, /*zero_flags=*/false);
  if (!status.ok()) return status;
  gemm.split = shares.split;
  gemm.slices = shares.slices;
  gemm.partials = static_cast<float*>(shares.partials);
  gemm.flags = prepare.flags = shares.flags;
  prepare.flag_count = shares.flags == nullptr ? 0 : shares.slices;
  status = cuda_status(launch_block_prepare(prepare), "rounding the activations");
  if (!status.ok()) return status;
  return cuda_status(block_gemm_launchers(form.scale_mode())[c.row](gemm), "launching the GEMM");
}

}  // namespace mixed_gemm
