// Stores the values of a warp tile without shared memory: one rounding, a transposition within
// quads of lanes, 16-byte stores. CUTLASS's epilogue, which exchanges through shared memory, took
// 12 of 92 us at 128 x 28672 x 4096 on an H200.
//
// mma leaves a lane rows g and g + 8 (g = lane / 4), columns 2 q and 2 q + 1 (q = lane % 4) of tile
// (i, j) of 16 x 8; it is at i + j * kMmaM of the values. All code here is unrolled over up to 128
// values and compiled into every kernel, so it is written for few instructions.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"

namespace mixed_gemm {

constexpr int kOctet = 8;  // 16 bytes of 16-bit outputs

// Where a lane's two values of rows 8 i .. 8 i + 7 and columns 8 j .. 8 j + 7 are.
template <int kMmaM>
constexpr int pair_index(int i, int j) {
  return 4 * j * kMmaM + 2 * i;
}

// words[e] holds columns 2 q, 2 q + 1 of octet e; behind it words are the columns of octet q.
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

// A warp tile is stored in store blocks of 16 x 32: block i + kMmaM * (j / 4) has the mma tiles
// (i, j .. j + 3). Thread blocks of a cluster share out those of a tile; everyone else stores all
// of them. A mask has a bit for each.
constexpr uint32_t kAllStoreBlocks = ~0u;
template <int kMmaM>
__device__ bool stores_block(uint32_t store_blocks, int i, int j) {
  return store_blocks >> (i + kMmaM * (j / 4)) & 1u;
}

// A row-major matrix [m, n] of 16-bit floats, contiguous.
template <typename Element>
struct RoundedMatrix {
  Element* d;
  int m, n;

  template <int kMmaM, int kMmaN>
  __device__ void store(const float* values, int row0, int column0, int lane,
                        uint32_t store_blocks) const {
    const int g = lane / 4, q = lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; j += 4) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        if (!stores_block<kMmaM>(store_blocks, i / 2, j)) continue;  // alike in all lanes
        uint32_t words[4] = {};
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4 && j + e < kMmaN; ++e) {
          const float* pair = values + pair_index<kMmaM>(i, j + e);
          words[e] = rounded(pair[0], pair[1]);
        }
        transpose_quad(words, q);
        if (kMmaN % 4 == 0 || j + q < kMmaN) {
          store_octet(words, row0 + 8 * i + g, column0 + 8 * (j + q));
        }
      }
    }
  }

  static __device__ uint32_t rounded(float x, float y) {
    using Converter = cutlass::NumericArrayConverter<Element, float, 2>;
    const auto pair = Converter()(cutlass::Array<float, 2>{x, y});
    return reinterpret_cast<const uint32_t&>(pair);
  }

  __device__ void store_octet(const uint32_t (&words)[4], int row, int column) const {
    if (row >= m || column >= n) return;
    Element* target = d + static_cast<int64_t>(row) * n + column;
    if (n % kOctet == 0) {  // then every row starts on 16 bytes
      *reinterpret_cast<uint4*>(target) = make_uint4(words[0], words[1], words[2], words[3]);
      return;
    }
    uint32_t turning[4] = {words[0], words[1], words[2], words[3]};
    auto* values = reinterpret_cast<uint16_t*>(target);
#pragma unroll 1  // an eighth of the machine code of a large tile, unrolled
    for (int left = n - column, w = 0; w < 4 && left > 0; ++w, left -= 2, values += 2) {
      values[0] = static_cast<uint16_t>(turning[0]);
      if (left > 1) values[1] = static_cast<uint16_t>(turning[0] >> 16);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 3; ++i) turning[i] = turning[i + 1];
    }
  }
};

// A row-major matrix of m rows and n columns of 4-byte values; `stride`, in values, is even, and
// the matrix starts on 8 bytes. May write column n where n is odd.
template <typename Value>
struct PairMatrix {
  Value* d;
  int m, n;
  int64_t stride;

  template <int kMmaM, int kMmaN>
  __device__ void store(const Value* values, int row0, int column0, int lane) const {
    const int column = column0 + lane % 4 * 2;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * kMmaM; ++i) {
      const int row = row0 + 8 * i + lane / 4;
      if (row >= m) return;
      auto* target = reinterpret_cast<float2*>(d + row * stride + column);
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kMmaN; ++j) {
        if (column + 8 * j < n) {
          __stcg(target + 4 * j,
                 *reinterpret_cast<const float2*>(values + pair_index<kMmaM>(i, j)));
        }
      }
    }
  }
};

}  // namespace mixed_gemm
