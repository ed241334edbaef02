// The launcher of the quantizer of activations to float8.
#include <algorithm>
#include <limits>

#include "dequant/with_element.cuh"
#include "grid/launch.cuh"
#include "transform/quantize_float8.cuh"
#include "transform/quantize_launchers.h"

namespace mixed_gemm {
namespace {

// Whether blocks of K of every row start on multiples of so many bytes.
bool start_on(const void* p, int64_t row_bytes, int64_t block_bytes, const QuantizeFloat8Problem& q,
              int bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0 && (row_bytes % bytes == 0 || q.m == 1) &&
         (block_bytes % bytes == 0 || q.blocks() == 1);
}

template <typename Element>
int launch(const QuantizeFloat8Params& params, const Pdl& pdl, void* stream) {
  const QuantizeFloat8Problem& p = params.problem;
  const int64_t teams = p.m * p.blocks(), length = params.length;
  const bool whole = length > 32 * kQuantizeVector;
  KernelLaunch shape;
  shape.stream = stream;
  shape.uses_pdl = pdl.sms > 0;
  if (whole) {  // two vectors a thread, up to 8192 elements; up to 16384 stay in registers
    shape.threads = static_cast<int>(std::clamp<int64_t>(
        round_up(ceil_div(length, 2 * kQuantizeVector), 32), 32, kMaxQuantizeThreads));
    shape.grid = dim3(static_cast<unsigned>(teams));
    return launch_kernel(quantize_float8_kernel<Element, true>, shape, params);
  }
  shape.threads = kFloat8TeamThreads;
  shape.grid =
      dim3(static_cast<unsigned>(ceil_div(teams << params.lane_bits, int64_t{kFloat8TeamThreads})));
  return launch_kernel(quantize_float8_kernel<Element, false>, shape, params);
}

}  // namespace

int launch_quantize_float8(const QuantizeFloat8Problem& all, const Pdl& pdl, void* stream) {
  QuantizeFloat8Params params;
  QuantizeFloat8Problem& p = params.problem;
  p = all;
  const int element = p.element == ElementType::kFloat32 ? 4 : 2;
  const int64_t blocks = p.blocks();
  if (p.m == 0 || blocks == 0) return cudaSuccess;
  params.length = p.block_k == 0 ? p.k : std::min(p.block_k, p.k);
  params.blocks = Divisor::of(static_cast<int>(blocks));
  params.lane_bits = 0;
  while (params.lane_bits < 5 && kQuantizeVector << params.lane_bits < params.length) {
    ++params.lane_bits;
  }
  params.aligned_a = start_on(p.a, p.a_stride * element, p.block_k * element, p, 16);
  params.aligned_q = start_on(p.q, p.k, p.block_k, p, 8);
  // Teams and threads of one launch are counted in 31 bits.
  const int64_t most = std::numeric_limits<int32_t>::max() / (blocks << params.lane_bits);
  const int64_t rows = std::max<int64_t>(1, most - most % kFloat8TeamThreads);
  for (int64_t row = 0; row < all.m; row += rows) {
    p.m = std::min(rows, all.m - row);
    const int error = with_element(p.element, [&](auto tag) {
      return launch<typename decltype(tag)::Type>(params, pdl, stream);
    });
    if (error != 0) return error;
    p.a = static_cast<const char*>(p.a) + rows * p.a_stride * element;
    p.q += rows * p.k;
    p.scale += rows * blocks;
  }
  return cudaSuccess;
}

}  // namespace mixed_gemm
