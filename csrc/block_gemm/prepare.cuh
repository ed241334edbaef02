// The first kernel of block_quant_gemm: it rounds A by the formula of problem/block_gemm.h, one
// read and one write, and prepares the rest. Blocks of the grid, in this order:
//   quantize   `lanes` threads take a block of K of a row and keep it in registers between choosing
//              the scale and rounding
//   columns    scales and offsets of B in fp32, in pairs, so that one cp.async brings one column
//              whatever their dtype and stride, with the column's sum where sums are given; zeroes
//              the semaphores of stream-K
//   copy       B with padded blocks and rows that start on 16 bytes, only where it is wanted
#pragma once
#include "block_gemm/args.h"
#include "cutlass/fast_math.h"
#include "layout/swizzled_lines.h"
#include "transform/quantize.cuh"

namespace mixed_gemm {

constexpr int kPrepareThreads = 256;

struct BlockPrepareParams {
  BlockPrepareArgs args;
  int lanes;     // of a block of a row: a power of two up to 32, or kPrepareThreads
  bool aligned;  // every block of A starts on 16 bytes
  cutlass::FastDivmod blocks, columns, padded;  // divide by blocks, n, form.padded
  int quantize_grid, column_grid, copy_grid;
};

// Reduces over `lanes` lanes of a warp; all 32 take part.
__device__ inline RowRange reduce_range_of(RowRange range, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    range.low = fminf(range.low, __shfl_xor_sync(0xffffffff, range.low, distance));
    range.high = fmaxf(range.high, __shfl_xor_sync(0xffffffff, range.high, distance));
    range.nan |= __shfl_xor_sync(0xffffffff, range.nan, distance);
  }
  return range;
}

// Reduces over the lanes of a warp, or all of the kPrepareThreads.
__device__ inline int reduce_sum_of(int sum, int lanes) {
  for (int distance = min(lanes, 32) / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  if (lanes <= 32) return sum;
  __shared__ int sums[kPrepareThreads / 32];
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int i = 0; i < kPrepareThreads / 32; ++i) sum += sums[i];
  return sum;
}

// The operations of the formula one by one: contracted to an fma, 127 * scale would not be rounded.
struct BlockScale {
  float scale, offset, inverse;

  static __device__ BlockScale of(const RowRange& range) {
    const float infinity = __int_as_float(0x7f800000), nan = __int_as_float(0x7fc00000);
    if (range.nan || range.low == -infinity || range.high == infinity) return {nan, nan, nan};
    const float scale = fmaxf(range.step(), kMinScale);
    return {scale, __fsub_rn(range.high, __fmul_rn(127.f, scale)), __fdiv_rn(1.f, scale)};
  }
  // cvt makes 0 of NaN; a number outside of int8 saturates when it is packed.
  __device__ int32_t operator()(float a) const {
    return __float2int_rn(__fmul_rn(__fsub_rn(a, offset), inverse));
  }
};

// Stores 8 values, 0 where a has none, and returns their sum.
template <typename Element>
__device__ int store_block(const BlockScale& scale, const QuantizeVector<Element>& vector,
                           int k_left, int8_t* q) {
  uint32_t words[2];
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int bytes = k_left - 4 * i;
    const uint32_t exist = bytes >= 4 ? ~0u : bytes <= 0 ? 0u : (1u << (8 * bytes)) - 1;
    words[i] = quantized_word(vector, scale, i) & exist;
    sum = __dp4a(static_cast<int>(words[i]), 0x01010101, sum);
  }
  *reinterpret_cast<uint2*>(q) = make_uint2(words[0], words[1]);
  return sum;
}

template <typename Element>
__device__ void quantize_blocks(const BlockPrepareParams& params, int grid_block) {
  const BlockGemmProblem& p = params.args.problem;
  const BlockForm& form = params.args.operands.form;
  const int lanes = params.lanes, lane = threadIdx.x % lanes;
  int row, block;
  params.blocks(row, block, grid_block * (kPrepareThreads / lanes) + threadIdx.x / lanes);
  const bool exists = row < p.m;  // the others go along with the shuffles
  const int64_t k0 = block * p.block_size;
  const int count = exists ? static_cast<int>(min(p.block_size, p.k - k0)) : 0;
  // The last block is stored to the end of the row (RowCopy::copy_chunk says why).
  const int stored = !exists                   ? 0
                     : block + 1 < form.blocks ? static_cast<int>(form.padded)
                                               : static_cast<int>(round_up(count, kChunkBytes));
  const auto* a = static_cast<const Element*>(p.a) + row * p.lda + k0;
  int8_t* q = params.args.operands.a + row * params.args.operands.a_stride + block * form.padded;
  const int first = lane * kQuantizeVector, step = lanes * kQuantizeVector;

  QuantizeVector<Element> kept[kQuantizeVectors];
  RangeOf<Element> of_thread;
#pragma unroll
  for (int i = 0; i < kQuantizeVectors; ++i) {
    const int k = first + i * step;
    kept[i].load(a + k, count - k, params.aligned);
    include(of_thread, kept[i], count - k);
  }
  for (int k = first + kQuantizeVectors * step; k < count; k += step) {
    QuantizeVector<Element> vector;
    vector.load(a + k, count - k, params.aligned);
    include(of_thread, vector, count - k);
  }
  const RowRange range =
      lanes <= 32 ? reduce_range_of(of_thread.range(), lanes) : reduce_range(of_thread.range());
  const BlockScale scale = BlockScale::of(range);

  int sum = 0;
#pragma unroll
  for (int i = 0; i < kQuantizeVectors; ++i) {
    const int k = first + i * step;
    if (k < stored) sum += store_block(scale, kept[i], count - k, q + k);
  }
  for (int k = first + kQuantizeVectors * step; k < stored; k += step) {
    QuantizeVector<Element> vector;
    vector.load(a + k, count - k, params.aligned);
    sum += store_block(scale, vector, count - k, q + k);
  }
  sum = reduce_sum_of(sum, lanes);
  if (lane == 0 && exists) {
    const float of_block =
        fmaf(scale.scale, static_cast<float>(sum), scale.offset * static_cast<float>(count));
    params.args.operands.rows[static_cast<int64_t>(block) * p.m + row] =
        RowScale{scale.scale, scale.offset, of_block, 0.f};
  }
}

template <typename Element>
__device__ void prepare_columns(const BlockPrepareParams& params, int grid_block) {
  const BlockPrepareArgs& args = params.args;
  const BlockGemmProblem& p = args.problem;
  const auto* scales = static_cast<const Element*>(p.scale_b);
  const auto* offsets = static_cast<const Element*>(p.offset_b);
  const int index = grid_block * kPrepareThreads + static_cast<int>(threadIdx.x);
  int block, column;
  params.columns(block, column, index);
  if (block < args.operands.form.blocks) {
    const int64_t at = block * p.scale_stride + column;
    const float scale(scales[at]), offset(offsets[at]);
    if (args.operands.summed_columns != nullptr) {
      const int sum = p.b_sums[index];
      args.operands.summed_columns[index] =
          SummedColumnScale{scale, offset, __fmul_rn(scale, static_cast<float>(sum)), 0.f};
    } else {
      args.operands.columns[index] = ColumnScale{scale, offset};
    }
  }
  for (int i = index; i < args.flag_count; i += params.column_grid * kPrepareThreads) {
    args.flags[i] = 0;
  }
}

// A block of the grid copies whole columns of B, a thread 16 bytes at a time.
__device__ inline void copy_b(const BlockPrepareParams& params, int grid_block) {
  const BlockPrepareArgs& args = params.args;
  const BlockGemmProblem& p = args.problem;
  const int stride = static_cast<int>(args.operands.b_stride);
  for (int64_t column = grid_block; column < p.n; column += params.copy_grid) {
    for (int at = static_cast<int>(threadIdx.x) * 16; at < stride; at += kPrepareThreads * 16) {
      int block, in_block;
      params.padded(block, in_block, at);
      const int64_t k = block * p.block_size + in_block;
      const int64_t count = min(p.block_size - in_block, p.k - k);
      const int8_t* source = p.b + column * p.ldb + k;
      alignas(16) int8_t bytes[16];
#pragma unroll
      for (int j = 0; j < 16; ++j) bytes[j] = j < count ? source[j] : int8_t{0};
      *reinterpret_cast<uint4*>(args.operands.b_copy + column * args.operands.b_stride + at) =
          *reinterpret_cast<const uint4*>(bytes);
    }
  }
}

template <typename Element>
__global__ void __launch_bounds__(kPrepareThreads)
    block_prepare_kernel(const __grid_constant__ BlockPrepareParams params) {
  int block = static_cast<int>(blockIdx.x);
  if (block < params.quantize_grid) return quantize_blocks<Element>(params, block);
  block -= params.quantize_grid;
  if (block < params.column_grid) return prepare_columns<Element>(params, block);
  copy_b(params, block - params.column_grid);
}

}  // namespace mixed_gemm
