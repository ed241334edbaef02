#include "dispatch/block_runner_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "block_gemm/launchers.h"

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

// Stream-K: how many blocks take shares.
Status stream_workers(const BlockCandidate& c, const BlockGemmArgs& args, int& workers) {
  const TileConfig& tile = kBlockTileConfigs[c.row];
  int device = 0;
  const Status status = cuda_status(cudaGetDevice(&device), "asking for the device");
  if (!status.ok()) return status;
  const int64_t units =
      ceil_div(args.m, tile.m) * ceil_div(args.n, tile.n) * args.form.split_parts();
  workers = static_cast<int>(
      std::min<int64_t>(units, static_cast<int64_t>(c.slices) * cuda_device_info(device).sm_count));
  return Status();
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

Status run_block_gemm(const BlockCandidate& c, const BlockGemmProblem& p, const Allocate& allocate,
                      void* stream) {
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
  gemm.split = c.split;
  gemm.slices = c.slices;
  gemm.stream = stream;
  if (!reads_in_place(p, form)) {
    gemm.b_stride = prepare.b_copy_stride = prepare.qa_stride;
    prepare.b_copy = allocate_array<int8_t>(allocate, p.n * prepare.b_copy_stride);
    gemm.b = prepare.b_copy;
  }
  if (c.split == SplitK::kStreamK) {
    const Status status = stream_workers(c, gemm, gemm.slices);
    if (!status.ok()) return status;
    const TileConfig& tile = kBlockTileConfigs[c.row];
    gemm.partials =
        allocate_array<float>(allocate, static_cast<int64_t>(gemm.slices) * tile.m * tile.n);
    gemm.flags = prepare.flags = allocate_array<int>(allocate, gemm.slices);
    prepare.flag_count = gemm.slices;
  }
  const Status status = cuda_status(launch_block_prepare(prepare), "rounding the activations");
  if (!status.ok()) return status;
  return cuda_status(block_gemm_launchers(form.scale_mode())[c.row](gemm), "launching the GEMM");
}

}  // namespace mixed_gemm
