// Stores the sums of a warp of the wgmma family. wgmma leaves a lane columns n = g, g + 8 and
// tokens 2 q, 2 q + 1 of each octet: the other way round than store_tile.cuh has it, so 8 x 8
// values are transposed on the way.
#pragma once
#include "epilogue/activate_all.cuh"
#include "epilogue/store_tile.cuh"
#include "epilogue/tile_output.cuh"

namespace mixed_gemm {

// Registers of lane (g, q): before, columns 2 q, 2 q + 1 of row g; after, rows 2 q, 2 q + 1 of
// column g.
__device__ inline uint32_t transpose_8x8(uint32_t word) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}

template <typename Config>
struct WgmmaOutput {
  using Element = typename Config::Element;
  static constexpr int kTokens = Config::kTile.m;
  TileOutput<Element, typename Config::Factor> p;

  struct Shared {};
  class Writer {
   public:
    __device__ Writer(const WgmmaOutput& output, Shared&) : all_(output), output_(output) {}
    // Stores rows of this expert from now on, which end at row_end.
    __device__ void enter(int expert, int row_end) {
      output_.p.output = all_.p.output.of_expert(expert);
      output_.p.m = row_end;
    }
    __device__ void request(int, int) {}
    // Stores the sums of a thread in the tile at (row0, column0), for a slice of a parallel split.
    __device__ void store_partials(const float* sums, int slice, int row0, int column0) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      each_row_tile(column0, [&](int t, int column) {
        output_.store_partials(sums + t * Config::kSumsPerTile, slice, row0 + lane % 4 * 2,
                               column + lane / 4);
      });
    }
    // Stores the outputs of a thread in the tile at (row0, column0). sums: used up.
    __device__ void store(float* sums, int row0, int column0) {
      each_row_tile(column0, [&](int t, int column) {
        output_.store_rows(sums + t * Config::kSumsPerTile, row0, column,
                           static_cast<int>(threadIdx.x) % 32);
      });
    }

   private:
    template <typename Use>
    __device__ static void each_row_tile(int column0, const Use& use) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < Config::kRowTiles; ++t) use(t, column0 + Config::column(warp, t));
    }

    const WgmmaOutput& all_;
    std::conditional_t<Config::kGrouped, WgmmaOutput, const WgmmaOutput&> output_;
  };

 private:
  // Stores the outputs of tokens from row0 on and of columns column0 to column0 + 15.
  __device__ void store_rows(float* sums, int row0, int column0, int lane) const {
    const int g = lane / 4, q = lane % 4;
    scale_and_bias(sums, column0 + g);
    if (p.output.activation != Activation::kIdentity) {
      activate_all<kTokens / 2>(p.output.activation, sums);
    }
    const RoundedMatrix<Element> matrix{p.output.d, p.m, p.output.n};
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kTokens / 16; ++j) {  // 16 tokens: octets of (tokens, columns)
      uint32_t words[4];
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 4; ++e) {
        words[e] = transpose_8x8(matrix.rounded(sums[8 * j + 2 * e], sums[8 * j + 2 * e + 1]));
      }
      transpose_quad(words, q);
      matrix.store_octet(words, row0 + 16 * j + 8 * (q / 2) + g, column0 + 8 * (q % 2));
    }
  }

  template <typename Value>
  __device__ float value(const Value* values, float missing, int column) const {
    return values != nullptr && column < p.output.n ? float(values[column]) : missing;
  }

  __device__ void scale_and_bias(float* sums, int column) const {
    if (p.output.channel_scale == nullptr && p.output.bias == nullptr) return;
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float scale = value(p.output.channel_scale, 1.f, column + 8 * h);
      const float bias = value(p.output.bias, 0.f, column + 8 * h);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 2 * h; i < kTokens / 2; i += 4) {
        sums[i] = fmaf(sums[i], scale, bias);
        sums[i + 1] = fmaf(sums[i + 1], scale, bias);
      }
    }
  }

  __device__ void store_partials(const float* sums, int slice, int row, int column) const {
    const bool columns[2] = {column < p.output.n, column + 8 < p.output.n};
    float* target =
        p.partials + (static_cast<int64_t>(slice) * p.m + row) * p.partial_stride + column;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kTokens / 8; ++j, target += 8 * p.partial_stride) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 4; ++i) {
        store_if(row + 8 * j + i % 2 < p.m && columns[i / 2],
                 target + i % 2 * p.partial_stride + i / 2 * 8, sums[4 * j + i]);
      }
    }
  }

  // Written in PTX, since a branch for each value was an eighth of the compile time.
  static __device__ void store_if(bool condition, float* target, float value) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.cg.f32 [%1], %2; }"
                 :
                 : "r"(static_cast<int>(condition)), "l"(target), "f"(value)
                 : "memory");
  }
};

}  // namespace mixed_gemm
