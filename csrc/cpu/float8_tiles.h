// float8 e4m3 as bf16, which holds every value of it: Float8Kernels by the bf16 dot product for few
// rows, Float8TileKernels by tile registers for more. It is for processors that have both and
// VPERMI2B, in assembly, so that the file that includes this needs no other flags. T: the tile
// instructions, as vector_tiles.h has them.
#pragma once
#include "cpu/float8_avx512.h"
#include "cpu/vector_tiles.h"

namespace mixed_gemm::cpu {
namespace {

// The bf16 bits of the codes without sign: 0 is 0, 1 to 7 are multiples of 2^-9, 0x7f is NaN.
constexpr uint16_t bf16_of_e4m3(int code) {
  if (code == 0) return 0;
  if (code == 0x7f) return 0x7fc0;
  int exponent = code >> 3, mantissa = code & 7;
  if (exponent == 0) {  // 2^-6 * mantissa / 8, normalised
    exponent = 1;
    while (mantissa < 8) mantissa <<= 1, --exponent;
    mantissa -= 8;
  }
  return static_cast<uint16_t>((exponent + 120) << 7 | mantissa << 4);
}
struct Bf16Bytes {
  uint8_t low[128], high[128];
};
constexpr Bf16Bytes make_bf16_bytes() {
  Bf16Bytes bytes = {};
  for (int code = 0; code < 128; ++code) {
    bytes.low[code] = static_cast<uint8_t>(bf16_of_e4m3(code) & 0xff);
    bytes.high[code] = static_cast<uint8_t>(bf16_of_e4m3(code) >> 8);
  }
  return bytes;
}
alignas(64) constexpr Bf16Bytes kBf16Bytes = make_bf16_bytes();

// Decodes 64 codes to bf16: K 0-7, 16-23, 32-39 and 48-55 in parts[0], the others in parts[1].
struct Bf16Decoder {
  __m512i low[2], high[2];
  [[gnu::always_inline]] Bf16Decoder() {
    for (int i = 0; i < 2; ++i) {
      low[i] = _mm512_load_si512(kBf16Bytes.low + 64 * i);
      high[i] = _mm512_load_si512(kBf16Bytes.high + 64 * i);
    }
  }
  [[gnu::always_inline]] void decode(__m512i codes, __m512i* parts) const {
    const __m512i lows = look_up(codes, low);
    const __m512i highs = _mm512_ternarylogic_epi32(look_up(codes, high), codes,
                                                    _mm512_set1_epi8(-128), 0xf8);  // a | (b & c)
    parts[0] = _mm512_unpacklo_epi8(lows, highs);
    parts[1] = _mm512_unpackhi_epi8(lows, highs);
  }

 private:
  // VPERMI2B reads 7 bits of each index.
  [[gnu::always_inline]] static __m512i look_up(__m512i codes, const __m512i* table) {
    asm("vpermi2b %2, %1, %0" : "+v"(codes) : "v"(table[0]), "v"(table[1]));
    return codes;
  }
};

[[gnu::always_inline]] inline __m512i load_codes(const uint8_t* p, int64_t count) {
  return count >= 64  ? _mm512_loadu_si512(p)
         : count <= 0 ? _mm512_setzero_si512()
                      : _mm512_maskz_loadu_epi8(~uint64_t{0} >> (64 - count), p);
}

// For few rows: sums of pairs by VDPBF16PS. Every product is exact; no subnormals of bf16 occur.
struct Float8Pairs : Float8Avx512 {
  using Operand = __m512i;
  static constexpr int kStep = 64, kParts = 2, kABytes = 2;
  struct Seen {
    [[gnu::always_inline]] bool nan() const { return false; }  // NaN is decoded as such
  };

  [[gnu::always_inline]] static void decode(const uint8_t* p, Operand* parts, Seen& /*seen*/) {
    Bf16Decoder().decode(_mm512_loadu_si512(p), parts);
  }
  [[gnu::always_inline]] static void decode(const uint8_t* p, int count, Operand* parts,
                                            Seen& /*seen*/) {
    Bf16Decoder().decode(load_codes(p, count), parts);
  }
  [[gnu::always_inline]] static void store_a(const Operand* parts, void* to, const Seen& /*seen*/,
                                             int /*codes*/) {
    _mm512_storeu_si512(to, parts[0]);
    _mm512_storeu_si512(static_cast<char*>(to) + 64, parts[1]);
  }
  [[gnu::always_inline]] static Floats dot(Operand b, const void* a, Floats sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(b), "v"(_mm512_loadu_si512(a)));
    return sum;
  }
};

constexpr Float8Kernels kFloat8Pairs = {Float8Pairs::kStep,
                                        Float8Pairs::kABytes,
                                        4,
                                        prepare_float8<Float8Pairs>,
                                        {float8_shape<Float8Pairs, 1, 8>(),
                                         float8_shape<Float8Pairs, 2, 8>(),
                                         float8_shape<Float8Pairs, 4, 4>(),
                                         {}},
                                        largest_avx512,
                                        round_float8_avx512};

// A register of B takes 16 pairs of K of 16 rows of A: pair p of row i is word 16 p + i.
void prepare_float8_tiles(const uint8_t* a, int64_t lda, int count, int64_t k, int64_t padded,
                          void* to, int64_t step_bytes) {
  const Bf16Decoder decoder;
  auto* bytes = static_cast<char*>(to);
  for (int64_t i = 0; i < padded; i += 64, bytes += 2 * step_bytes) {
    for (int r = 0; r < kTileRows; ++r) {
      __m512i parts[2];
      decoder.decode(load_codes(a + r * lda + i, r < count ? k - i : 0), parts);
      for (int part = 0; part < 2; ++part) {
        alignas(64) uint32_t pairs[16];
        _mm512_store_si512(pairs, parts[part]);
        auto* words = reinterpret_cast<uint32_t*>(bytes + part * step_bytes) + r;
        for (int p = 0; p < 16; ++p) words[16 * p] = pairs[p];
      }
    }
  }
}

// The codes of the next segment are fetched on the way: there are 16 columns at a time, more than
// the hardware's prefetcher follows, and few codes of each.
void decode_float8_tiles(const uint8_t* b, int64_t ldb, int count, int64_t k, int64_t padded,
                         void* to) {
  const Bf16Decoder decoder;
  auto* bytes = static_cast<char*>(to);
  for (int64_t i = 0; i < padded; i += 64, bytes += 2 * kTileRegisterBytes) {
    const bool whole = count == kTileRows && k - i >= 64;
    for (int c = 0; c < kTileRows; ++c) {
      __m512i parts[2];
      const uint8_t* from = b + c * ldb + i;
      __builtin_prefetch(from + padded);
      decoder.decode(whole ? _mm512_loadu_si512(from) : load_codes(from, c < count ? k - i : 0),
                     parts);
      _mm512_store_si512(bytes + c * kTileRowBytes, parts[0]);
      _mm512_store_si512(bytes + c * kTileRowBytes + kTileRegisterBytes, parts[1]);
    }
  }
}

// The register of the sums of columns n and rows m is 2 n + m.
template <typename T, int kColumnTiles, int kRowTiles>
void multiply_float8_tiles(const Float8TileKernels::Operands& o, float* sums, int64_t stride) {
  constexpr int kSums = kColumnTiles * kRowTiles;
  constexpr int64_t kRows = kRowTiles * kTileRows;
  alignas(64) float block[kColumnTiles * kTileRows * kRows];
  const auto for_each_sum = [&](const auto& body) __attribute__((always_inline)) {
    unroll<kSums>([&](auto i) __attribute__((always_inline)) {
      constexpr int kN = i / kRowTiles, kM = i % kRowTiles;
      body(std::integral_constant<int, 2 * kN + kM>{}, kN * kTileRows, kM * kTileRows);
    });
  };
  const auto* a = static_cast<const char*>(o.a);
  const auto* b = static_cast<const char*>(o.b);
  const bool scaled = o.scale_a != nullptr;
  for_each_sum([&](auto i, int column, int row) __attribute__((always_inline)) {
    if (scaled) {
      T::template zero<i>();
    } else {
      T::template load<i>(sums + column * stride + row, stride * 4);
    }
  });
  for (int64_t step = 0; step < o.steps; ++step) {
    unroll<kRowTiles>([&](auto m) __attribute__((always_inline)) {
      T::template load<kTileB + m>(a + m * kTileRegisterBytes, kTileRowBytes);
    });
    unroll<kColumnTiles>([&](auto n) __attribute__((always_inline)) {
      T::template load<kTileA + n>(b + n * o.b_tile_bytes, kTileRowBytes);
      unroll<kRowTiles>([&](auto m) __attribute__((always_inline)) {
        T::template dot<2 * n + m, kTileA + n, kTileB + m>();
      });
    });
    a += o.a_step_bytes;
    b += kTileRegisterBytes;
  }
  for_each_sum([&](auto i, int column, int row) __attribute__((always_inline)) {
    float* to = scaled ? block + column * kRows + row : sums + column * stride + row;
    T::template store<i>(to, (scaled ? kRows : stride) * 4);
  });
  if (!scaled) return;
  __m512 scale_a[kRowTiles];
  for (int m = 0; m < kRowTiles; ++m) scale_a[m] = _mm512_loadu_ps(o.scale_a + m * kTileRows);
  for (int c = 0; c < kColumnTiles * kTileRows; ++c) {
    const __m512 scale_b = _mm512_set1_ps(o.scale_b[c][o.segment]);
    for (int m = 0; m < kRowTiles; ++m) {
      float* to = sums + c * stride + m * kTileRows;
      const __m512 sum = _mm512_load_ps(block + c * kRows + m * kTileRows);
      _mm512_storeu_ps(
          to, _mm512_fmadd_ps(sum, _mm512_mul_ps(scale_a[m], scale_b), _mm512_loadu_ps(to)));
    }
  }
}

constexpr Float8Kernels with_tiles(Float8Kernels kernels, const Float8TileKernels* tiles) {
  kernels.tiles = tiles;
  return kernels;
}

template <typename T>
constexpr Float8TileKernels make_float8_tile_kernels() {
  return {T::kMinFloat8Rows,
          [] { T::configure(kTileStep); },
          T::release,
          prepare_float8_tiles,
          decode_float8_tiles,
          {{multiply_float8_tiles<T, 1, 1>, multiply_float8_tiles<T, 1, 2>},
           {multiply_float8_tiles<T, 2, 1>, multiply_float8_tiles<T, 2, 2>}}};
}

}  // namespace
}  // namespace mixed_gemm::cpu
