// A mainloop of ours as a threadblock-scoped Mma of CUTLASS 2.x, so that CUTLASS's own kernel runs
// it.
//
// CUTLASS's kernel makes an iterator for each operand and hands both to the Mma. The mainloop finds
// its own addresses, so here an iterator only says where the tile begins, and that of B carries
// what the mainloop takes from the host.
#pragma once
#include "cutlass/cutlass.h"
#include "cutlass/gemm/gemm.h"
#include "cutlass/gemm/threadblock/mma_base.h"
#include "cutlass/gemm/warp/mma_tensor_op.h"
#include "cutlass/gemm/warp/mma_tensor_op_policy.h"
#include "cutlass/layout/tensor_op_multiplicand_sm75.h"
#include "grid/pdl.cuh"

namespace mixed_gemm {

// The warp-level product over kK elements of K whose traits CUTLASS's kernel asks for. Instruction:
// a cutlass::arch::Mma. Accumulator (i, j) of 16 x 8 is at i + j * kMmaM in its fragment as in
// ours.
template <typename Config, typename Instruction, int kK>
using WarpMmaTraits = cutlass::gemm::warp::MmaTensorOp<
    cutlass::gemm::GemmShape<Config::kTile.warp_m, Config::kTile.warp_n, kK>,
    typename Instruction::ElementA,
    cutlass::layout::RowMajorTensorOpMultiplicandCrosswise<
        cutlass::sizeof_bits<typename Instruction::ElementA>::value, kK>,
    typename Instruction::ElementB,
    cutlass::layout::ColumnMajorTensorOpMultiplicandCrosswise<
        cutlass::sizeof_bits<typename Instruction::ElementB>::value, kK>,
    typename Instruction::ElementC, cutlass::layout::RowMajor,
    cutlass::gemm::warp::MmaTensorOpPolicy<Instruction, cutlass::MatrixShape<1, 1>>>;

// kK: elements of K in an iteration of the mainloop.
template <typename Config_, typename Mainloop, int kK>
class ThreadblockMma {
 public:
  using Config = Config_;
  using Operator = WarpMmaTraits<Config, typename Mainloop::Mma, kK>;
  using Shape = cutlass::gemm::GemmShape<Config::kTile.m, Config::kTile.n, kK>;
  using Policy = cutlass::gemm::threadblock::MmaPolicy<Operator, cutlass::MatrixShape<0, 0>,
                                                       cutlass::MatrixShape<0, 0>, 1>;
  using ElementC = typename Operator::ElementC;
  using LayoutC = cutlass::layout::RowMajor;
  using FragmentC = typename Operator::FragmentC;
  using ArchTag = cutlass::arch::Sm80;
  using WarpCount = cutlass::gemm::GemmShape<Config::kTile.m / Config::kTile.warp_m,
                                             Config::kTile.n / Config::kTile.warp_n, 1>;
  static constexpr int kStages = Config::kStages;
  static constexpr auto kTransformA = cutlass::ComplexTransform::kNone;
  static constexpr auto kTransformB = cutlass::ComplexTransform::kNone;
  static_assert(sizeof(FragmentC) == sizeof(typename Mainloop::Accumulators), "same registers");

  using MainloopParams = typename Mainloop::Params;
  using SharedStorage = typename Mainloop::SharedStorage;

  struct IteratorA {
    using Element = typename Operator::ElementA;
    using Layout = cutlass::layout::RowMajor;
    using AccessType = cutlass::AlignedArray<Element, 128 / cutlass::sizeof_bits<Element>::value>;
    struct Params {
      Params() = default;
      CUTLASS_HOST_DEVICE Params(const Layout&) {}
    };

    CUTLASS_DEVICE IteratorA(const Params&, Element*, cutlass::MatrixCoord, int,
                             const cutlass::MatrixCoord& begin, const int* = nullptr)
        : row(begin.row()), k(begin.column()) {}

    int row, k;
  };

  struct IteratorB {
    using Element = typename Operator::ElementB;
    using Layout = cutlass::layout::ColumnMajor;
    using AccessType = cutlass::AlignedArray<Element, 128 / cutlass::sizeof_bits<Element>::value>;
    struct Params {
      Params() = default;
      CUTLASS_HOST_DEVICE Params(const Layout&) {}
      MainloopParams mainloop;  // set once the kernel's Params are made
    };

    CUTLASS_DEVICE IteratorB(const Params& params, Element*, cutlass::MatrixCoord, int,
                             const cutlass::MatrixCoord& begin, const int* = nullptr)
        : params(params), column(begin.column()) {}

    const Params& params;
    int column;
  };

  CUTLASS_DEVICE ThreadblockMma(SharedStorage& storage, int thread, int /*warp*/, int /*lane*/)
      : storage_(storage), thread_(thread) {}

  CUTLASS_DEVICE void operator()(int iterations, FragmentC& sums, const IteratorA& a,
                                 const IteratorB& b, const FragmentC& /*before: zeros*/) {
    const int begin = a.k / kK;
    Mainloop mainloop(b.params.mainloop, storage_, a.row, b.column, begin, begin + iterations,
                      thread_);
    pdl_wait();  // addresses are known by now
    pdl_launch_dependents();
    mainloop.run(reinterpret_cast<typename Mainloop::Accumulators&>(sums));
  }

 private:
  SharedStorage& storage_;
  int thread_;
};

}  // namespace mixed_gemm
