// Compiled with the flags of kernels_avx512.cpp: the tile instructions are inline assembly. Reached
// only after CPUID says so and the kernel has granted the registers (instruction_set.cpp).
//
// The processors that have tiles run the bf16 dot product of AVX-512 at half the rate of an fp32
// fma: 4096 x 4096, int4, bf16, 2 cores of an Emerald Rapids, M = 4 / 8 / 16 take 717 / 1315 / 2928
// us with it, 494 / 820 / 1877 in fp32. So few rows go through fp32 words here, whatever their
// type, and all others through the tiles.

#include "cpu/quiet_avx512.h"

#include "cpu/float8_tiles.h"
#include "cpu/integer_tiles.h"
#include "cpu/vector_tiles.h"

namespace mixed_gemm::cpu {
namespace {

// LDTILECFG's operand: palette 1 has 8 registers of up to 16 rows of 64 bytes (Intel SDM, volume 1,
// chapter 18).
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64, "LDTILECFG reads 64 bytes");

// The tile instructions. All that touch memory say so, or the compiler may move loads and stores.
struct AmxTiles {
  // 4096 x 4096, 2 cores of an Emerald Rapids (2 MB of L2), groups of 128, ms; columns / words:
  //               bf16 int4              bf16 int8              fp32 int4
  //   M           16     64     256      16     64     256      32     256
  //   32 / 64     0.52   1.27   5.25     1.08   2.07   5.94     1.24   13.9
  //   64 / 128    0.75   1.68   5.31     0.90   1.82   5.19     1.55   10.2
  //   128 / 128   0.84   1.61   5.07     0.93   1.89   5.01     1.58   9.0
  //   512 / 128   0.90   1.81   5.34     1.28   2.37   5.72     1.74   8.6
  // Chunks of fewer rows, which keep A in L2 and decode the weight for each, were no faster: at M =
  // 256 128 rows 4.76 (bf16) and 8.6 (fp32) at best, 64 rows 4.85 and 9.7.
  static constexpr Blocking kWide = {128, 128},
                            kNarrow[kNumWeights] = {{32, 64},  {64, 128}, {32, 64},
                                                    {64, 128}, {32, 64},  {32, 64}};
  static constexpr int64_t kNarrowBytes = 1 << 20;
  // 4096 x 4096, 2 cores of an Emerald Rapids, us, bf16: int4 at M = 4 / 5 fused 494 / 813, tiles
  // 492 / 517; int8 at M = 8 / 12 fused 957 / 1563, tiles 971 / 990. fp32 splits the same way.
  static constexpr int64_t kMinRows[kNumWeights] = {5, 9, 5, 9, 5, 5};
  // 3072 x 576, cold, 2 cores of a Xeon with AMX, us, dot products / tiles: 58 / 70 at M = 2, 86
  // / 66 at 4, 169 / 75 at 16, 469 / 156 at 64, 2725 / 1023 at 512; 4096 x 4096 820 / 662 at 4,
  // 1267 / 639 at 16, 19327 / 6381 at 512.
  static constexpr int64_t kMinIntegerRows = 4;
  static constexpr int64_t kMinFloat8Rows = 2;

  static void configure(int step) {
    TileConfig config;
    for (int i = 0; i < kTileB + 2; ++i) {
      const bool a = i == kTileA || i == kTileA + 1, b = i >= kTileB;
      config.row_bytes[i] = static_cast<uint16_t>(a ? step * 2 : kTileRowBytes);
      config.rows[i] = static_cast<uint8_t>(b ? step / 2 : kTileRows);
    }
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static void release() { asm volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  [[gnu::always_inline]] static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  [[gnu::always_inline]] static void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] static void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // c += a b, in fp32 sums, rounded to nearest; subnormal inputs and results count as zero.
  template <int kC, int kA, int kB>
  [[gnu::always_inline]] static void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  // c += a b for int8: exact int32 sums of four products for each word.
  template <int kC, int kA, int kB>
  [[gnu::always_inline]] static void dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

constexpr TileKernels kTiles = make_tile_kernels<AmxTiles>();
constexpr IntegerTiles kIntegerTiles = make_integer_tiles<AmxTiles>();
constexpr Float8TileKernels kFloat8Tiles = make_float8_tile_kernels<AmxTiles>();
constexpr Float8Kernels kFloat8Amx = with_tiles(kFloat8Pairs, &kFloat8Tiles);

}  // namespace

const CpuKernels& avx512_amx_kernels() {
  static const IntegerKernels kInteger = avx512_vnni_kernels().int8->with(&kIntegerTiles);
  static const CpuKernels kKernels = avx512_vnni_kernels()
                                         .with("avx512_amx", &CpuKernels::tiles, &kTiles)
                                         .with("avx512_amx", &CpuKernels::int8, &kInteger)
                                         .with("avx512_amx", &CpuKernels::float8, &kFloat8Amx);
  return kKernels;
}

}  // namespace mixed_gemm::cpu
