// Visitor for CUTLASS's EpilogueWithVisitor: receives 8 accumulators of one row at a time, after
// CUTLASS has exchanged them through shared memory; adds the fp32 partial sums of earlier split-K
// slices, then stores partial sums or finishes.
#pragma once
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/epilogue/threadblock/default_epilogue_tensor_op.h"
#include "cutlass/epilogue/threadblock/epilogue_with_visitor.h"
#include "cutlass/gemm/warp/default_mma_tensor_op.h"
#include "epilogue/finish_output.cuh"

namespace mixed_gemm {

template <typename Element, typename OutputTileIterator>
class OutputVisitor {
 public:
  using ThreadMap = typename OutputTileIterator::ThreadMap;
  static constexpr int kIterations = OutputTileIterator::kIterations;
  static constexpr int kElementsPerAccess = kOutputsPerAccess;
  using ElementOutput = Element;
  using AccumulatorFragment = cutlass::Array<float, kElementsPerAccess>;
  static_assert(OutputTileIterator::kElementsPerAccess == kElementsPerAccess, "");

  struct Params {
    OutputParams<Element> output;
    int m;
    int64_t partial_stride;  // elements between rows of the partial sums, a multiple of 8
    typename OutputTileIterator::Params iterator;
  };

  // Partial sums are [m, partial_stride]; add_from null: there are none yet. store_to null: finish
  // the output here.
  __device__ OutputVisitor(const Params& params, const float* add_from, float* store_to, int row0,
                           int column0, int thread)
      : params_(params),
        add_from_(add_from),
        store_to_(store_to),
        // Used for its coordinates only: it knows which rows and columns CUTLASS gives this thread.
        position_(params.iterator, nullptr, {params.m, params.output.n}, thread, {row0, column0}) {}

  __device__ void begin_epilogue() {}
  __device__ void begin_step(int) {}
  __device__ void begin_row(int) {}
  __device__ void end_row(int) {}
  __device__ void end_step(int) { ++position_; }
  __device__ void end_epilogue() {}

  __device__ void visit(int, int, int, int fragment, AccumulatorFragment sums) {
    const auto at = position_.thread_start() + ThreadMap::iteration_offset(fragment);
    if (at.row() >= params_.m || at.column() >= params_.output.n) return;
    const int64_t offset = at.row() * params_.partial_stride + at.column();
    auto* quads = reinterpret_cast<float4*>(&sums);
    if (add_from_ != nullptr) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kElementsPerAccess / 4; ++i) {  // written by another SM: not through L1
        const float4 before = __ldcg(reinterpret_cast<const float4*>(add_from_ + offset) + i);
        quads[i] = make_float4(before.x + quads[i].x, before.y + quads[i].y, before.z + quads[i].z,
                               before.w + quads[i].w);
      }
    }
    if (store_to_ == nullptr) {
      finish_output(params_.output, OutputColumns<Element>(params_.output, at.column()), at.row(),
                    at.column(), sums);
      return;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kElementsPerAccess / 4; ++i)
      __stcg(reinterpret_cast<float4*>(store_to_ + offset) + i, quads[i]);
  }

 private:
  const Params& params_;
  const float* add_from_;
  float* store_to_;
  OutputTileIterator position_;
};

// Assembles CUTLASS's epilogue around the visitor for one tile.
template <typename Element, typename ThreadblockShape, typename WarpShape>
struct DefaultOutputEpilogue {
  using WarpMma = typename cutlass::gemm::warp::DefaultMmaTensorOp<
      WarpShape, cutlass::gemm::GemmShape<16, 8, 16>, Element,
      cutlass::layout::RowMajorTensorOpMultiplicandCrosswise<16, 64>, Element,
      cutlass::layout::ColumnMajorTensorOpMultiplicandCrosswise<16, 64>, float,
      cutlass::layout::RowMajor>::Type;
  using Existing = typename cutlass::epilogue::threadblock::DefaultEpilogueTensorOp<
      ThreadblockShape, WarpMma, 1,
      cutlass::epilogue::thread::LinearCombination<Element, kOutputsPerAccess, float, float>,
      kOutputsPerAccess>::Epilogue;
  using Visitor = OutputVisitor<Element, typename Existing::OutputTileIterator>;
  // Not unrolled: the activations would be repeated for every row of the tile.
  using Epilogue = typename cutlass::epilogue::threadblock::EpilogueWithVisitorFromExistingEpilogue<
      Visitor, Existing, /*IterationsUnroll=*/false>::Epilogue;
};

}  // namespace mixed_gemm
