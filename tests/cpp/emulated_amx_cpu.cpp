// The avx512_amx kernels with the tile instructions emulated, for machines that lack them. Compiled
// with the flags of csrc/cpu/kernels_avx512.cpp.

#include "cpu/quiet_avx512.h"

#include "emulated_amx_cpu.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "cpu/integer_tiles.h"
#include "cpu/vector_tiles.h"

namespace mixed_gemm::test {
namespace {

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? 0.f : x; }

float from_bf16(uint32_t bits) {
  float x;
  bits <<= 16;
  std::memcpy(&x, &bits, sizeof(x));
  return flushed(x);
}

// LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS and TDPBSSD as Intel's SDM has them, for
// the shapes of the kernels: every register of A has `step` columns, every one of B step / 2 rows.
// A thread that uses a register before it configured them dies, as it would of the instruction.
struct EmulatedTiles {
  static constexpr cpu::Blocking kWide = {96, 64},
                                 kNarrow[kNumWeights] = {{32, 32}, {32, 64}, {32, 32},
                                                         {32, 64}, {32, 32}, {32, 32}};
  static constexpr int64_t kNarrowBytes = 16 << 10;
  static constexpr int64_t kMinRows[kNumWeights] = {5, 9, 5, 9, 5, 5}, kMinIntegerRows = 4;
  struct Registers {
    int step = 0;
    uint32_t words[8][16][16];
  };
  static thread_local Registers registers;

  static void configure(int step) { registers.step = step; }
  static void release() { registers.step = 0; }
  static void need_configuration() {
    if (registers.step == 0) std::abort();
  }
  static int rows(int tile) { return tile >= cpu::kTileB ? registers.step / 2 : 16; }
  static size_t row_bytes(int tile) {
    const bool a = tile >= cpu::kTileA && tile < cpu::kTileB;
    return a ? static_cast<size_t>(registers.step) * 2 : 64;
  }

  template <int kTile>
  static void zero() {
    need_configuration();
    std::memset(registers.words[kTile], 0, sizeof(registers.words[kTile]));
  }
  template <int kTile>
  static void load(const void* p, int64_t stride) {
    zero<kTile>();
    const auto* from = static_cast<const char*>(p);
    for (int r = 0; r < rows(kTile); ++r) {
      std::memcpy(registers.words[kTile][r], from + r * stride, row_bytes(kTile));
    }
  }
  template <int kTile>
  static void store(void* p, int64_t stride) {
    need_configuration();
    auto* to = static_cast<char*>(p);
    for (int r = 0; r < rows(kTile); ++r) {
      std::memcpy(to + r * stride, registers.words[kTile][r], row_bytes(kTile));
    }
  }
  template <int kC, int kA, int kB>
  static void dot() {
    need_configuration();
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        float sum;
        std::memcpy(&sum, &registers.words[kC][m][n], sizeof(sum));
        float even = 0, odd = 0;
        for (int k = 0; k < registers.step / 2; ++k) {
          const uint32_t a = registers.words[kA][m][k], b = registers.words[kB][k][n];
          even = flushed(std::fma(from_bf16(a & 0xffff), from_bf16(b & 0xffff), even));
          odd = flushed(std::fma(from_bf16(a >> 16), from_bf16(b >> 16), odd));
        }
        sum = flushed(sum + flushed(even + odd));
        std::memcpy(&registers.words[kC][m][n], &sum, sizeof(sum));
      }
    }
  }
  template <int kC, int kA, int kB>
  static void dot_int8() {
    need_configuration();
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < 16; ++n) {
        for (int k = 0; k < registers.step / 2; ++k) {
          int8_t a[4], b[4];
          std::memcpy(a, &registers.words[kA][m][k], 4);
          std::memcpy(b, &registers.words[kB][k][n], 4);
          for (int i = 0; i < 4; ++i) {
            registers.words[kC][m][n] += static_cast<uint32_t>(int{a[i]} * b[i]);
          }
        }
      }
    }
  }
};
thread_local EmulatedTiles::Registers EmulatedTiles::registers;

constexpr cpu::TileKernels kTiles = cpu::make_tile_kernels<EmulatedTiles>();
constexpr cpu::IntegerTiles kIntegerTiles = cpu::make_integer_tiles<EmulatedTiles>();

}  // namespace

const cpu::CpuKernels& emulated_amx_kernels() {
  static const cpu::IntegerKernels kInteger = cpu::avx512_kernels().int8->with(&kIntegerTiles);
  static const cpu::CpuKernels kKernels =
      cpu::avx512_kernels()
          .with("avx512_amx_emulated", &cpu::CpuKernels::tiles, &kTiles)
          .with("avx512_amx_emulated", &cpu::CpuKernels::int8, &kInteger);
  return kKernels;
}

}  // namespace mixed_gemm::test
