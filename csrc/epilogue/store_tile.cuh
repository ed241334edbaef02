// A warp's accumulators -> outputs, without shared memory: scale and bias, activation, one
// rounding, a transposition within quads of lanes, 16-byte stores. CUTLASS's epilogue, which
// exchanges through shared memory, took 12 of 92 us at 128 x 28672 x 4096 on an H200.
//
// Every step is written for few instructions: this code is unrolled over up to 128 accumulators and
// compiled for every tile, dtype and scale mode. Working on one octet of outputs at a time, as
// finish_output.cuh does, it was two thirds of the machine code.
#pragma once
#include "epilogue/finish_output.cuh"

namespace mixed_gemm {

// Before: words[e] holds columns 2 q, 2 q + 1 of octet e (q = lane % 4). After: words are the
// columns of octet q in order.
__device__ inline void transpose_quad(uint32_t (&words)[4], int q) {
  const auto exchange = [&](int low, int high, int bit) {  // word `high` of lanes without `bit`
    const bool upper = (q & bit) != 0;                     // for word `low` of lanes with it
    const uint32_t received = __shfl_xor_sync(0xffffffff, upper ? words[low] : words[high], bit);
    (upper ? words[low] : words[high]) = received;
  };
  exchange(0, 1, 1);
  exchange(2, 3, 1);
  exchange(0, 2, 2);
  exchange(1, 3, 2);
}

// The activation of all of `values`, which stay in registers: no register can be indexed by a
// variable, so loops turn the array instead, and the code holds one copy of the activations.
template <int kCount>
__device__ void activate_all(Activation activation, float* values) {
  constexpr int kChunk = 8;
#pragma unroll 1
  for (int chunk = 0; chunk < kCount / kChunk; ++chunk) {
    float turning[kChunk];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kChunk; ++i) turning[i] = values[i];
    CUTLASS_PRAGMA_UNROLL
    for (int i = kChunk; i < kCount; ++i) values[i - kChunk] = values[i];
#pragma unroll 1
    for (int turn = 0; turn < kChunk; ++turn) {
      const float first = activate(activation, turning[0]);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i + 1 < kChunk; ++i) turning[i] = turning[i + 1];
      turning[kChunk - 1] = first;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kChunk; ++i) values[kCount - kChunk + i] = turning[i];
  }
}

template <typename Element>
struct TileOutput {
  OutputParams<Element> output;
  int m;
  float* partials;         // parallel split: fp32 sums [slices, m, partial_stride]
  int64_t partial_stride;  // a multiple of 8

  // accumulators: tile (i, j) of 16 x 8 at i + j * kMmaM; used up. slice: of a parallel split,
  // whose sums are stored; -1: finish the output.
  template <int kMmaM, int kMmaN>
  __device__ void store(float* accumulators, int slice, int row0, int column0, int lane) const {
    if (slice >= 0) {
      store_partials<kMmaM, kMmaN>(accumulators, slice, row0, column0, lane);
      return;
    }
    if (output.channel_scale != nullptr || output.bias != nullptr) {
      scale_and_bias<kMmaM, kMmaN>(accumulators, column0 + lane % 4 * 2);
    }
    if (output.activation != Activation::kIdentity) {
      activate_all<4 * kMmaM * kMmaN>(output.activation, accumulators);
    }
    store_rounded<kMmaM, kMmaN>(accumulators, row0, column0, lane);
  }

 private:
  // Values of columns column, column + 1; `missing` where there are none, or past n.
  __device__ float2 pair_of(const Element* values, float missing, int column) const {
    float2 pair = make_float2(missing, missing);
    if (values != nullptr) {
      if (column < output.n) pair.x = float(values[column]);
      if (column + 1 < output.n) pair.y = float(values[column + 1]);
    }
    return pair;
  }

  template <int kMmaM, int kMmaN>
  __device__ void scale_and_bias(float* accumulators, int column) const {
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      const float2 scale = pair_of(output.channel_scale, 1.f, column + 8 * j);
      const float2 bias = pair_of(output.bias, 0.f, column + 8 * j);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        float* sums = accumulators + 4 * j * kMmaM + 2 * i;
        sums[0] = fmaf(sums[0], scale.x, bias.x);
        sums[1] = fmaf(sums[1], scale.y, bias.y);
      }
    }
  }

  template <int kMmaM, int kMmaN>
  __device__ void store_rounded(const float* accumulators, int row0, int column0, int lane) const {
    const int g = lane / 4, q = lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; j += 4) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {  // 8 rows each
        uint32_t words[4];
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4; ++e) {
          const float* sums = accumulators + 4 * (j + e) * kMmaM + 2 * i;
          words[e] = rounded(sums[0], sums[1]);
        }
        transpose_quad(words, q);
        store_octet(words, row0 + 8 * i + g, column0 + 8 * (j + q));
      }
    }
  }

  static __device__ uint32_t rounded(float x, float y) {
    using Converter = cutlass::NumericArrayConverter<Element, float, 2>;
    const auto pair = Converter()(cutlass::Array<float, 2>{x, y});
    return reinterpret_cast<const uint32_t&>(pair);
  }

  __device__ void store_octet(const uint32_t (&words)[4], int row, int column) const {
    if (row >= m || column >= output.n) return;
    Element* d = output.d + static_cast<int64_t>(row) * output.n + column;
    if (output.n % kOutputsPerAccess == 0) {  // then every row starts on 16 bytes
      *reinterpret_cast<uint4*>(d) = make_uint4(words[0], words[1], words[2], words[3]);
      return;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOutputsPerAccess; ++i) {
      if (column + i < output.n) {
        reinterpret_cast<uint16_t*>(d)[i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
      }
    }
  }

  template <int kMmaM, int kMmaN>
  __device__ void store_partials(const float* accumulators, int slice, int row0, int column0,
                                 int lane) const {
    const int column = column0 + lane % 4 * 2;
    float* target = partials + static_cast<int64_t>(slice) * m * partial_stride + column;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * kMmaM; ++i) {
      const int row = row0 + 8 * i + lane / 4;
      if (row >= m) return;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kMmaN; ++j) {
        if (column + 8 * j < output.n) {
          const float* sums = accumulators + 4 * j * kMmaM + 2 * i;
          __stcg(reinterpret_cast<float2*>(target + row * partial_stride + 8 * j),
                 make_float2(sums[0], sums[1]));
        }
      }
    }
  }
};

}  // namespace mixed_gemm
