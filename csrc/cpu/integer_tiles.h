// IntegerTiles from the tile instructions T: AMX in kernels_avx512_amx.cpp, its emulation in the
// tests. See vector_kernels.h for the unnamed namespace.
//
// 48 columns are three registers of sums and three of B beside one of A. 64 rows pass by in four
// blocks of 16 for each slab of K, whose sums wait in memory, so that B comes from L1 for all but
// the first of them.
#pragma once
#include <immintrin.h>

#include "cpu/integer_kernels.h"
#include "cpu/vector_kernels.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int kIntegerStep = IntegerTiles::kStepK;
constexpr int kIntegerTileColumns = 16;      // of B in a register
constexpr int kIntegerTileBytes = 1024;      // of a register: 16 rows of 64 bytes
constexpr int kMostColumnTiles = 3;          // 48 columns
constexpr int kMostRowBlocks = 4;            // 64 rows
constexpr int64_t kIntegerSlabK = 512;       // 48 columns of it are 24 KB, half of an L1
constexpr int kIntegerB = 3, kIntegerA = 6;  // registers; those of sums are 0 to 2

[[gnu::always_inline]] inline __mmask64 first_bytes(int64_t count) {
  return count >= kIntegerStep ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Transposes 16 x 16 words: register r holds row r before, column r after.
[[gnu::always_inline]] inline void transpose(__m512i (&rows)[16]) {
  __m512i pairs[16], quads[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // quads[4 i + j]: of rows 4 i to 4 i + 3, column 4 l + j in 128-bit lane l.
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = _mm512_unpacklo_epi64(pairs[i + j], pairs[i + 2 + j]);
      quads[i + 2 * j + 1] = _mm512_unpackhi_epi64(pairs[i + j], pairs[i + 2 + j]);
    }
  }
  constexpr int kEven = 0x88, kOdd = 0xdd;  // lanes 0 and 2, or 1 and 3, of both operands
  for (int j = 0; j < 4; ++j) {
    const __m512i low_even = _mm512_shuffle_i32x4(quads[j], quads[4 + j], kEven);
    const __m512i low_odd = _mm512_shuffle_i32x4(quads[j], quads[4 + j], kOdd);
    const __m512i high_even = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], kEven);
    const __m512i high_odd = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], kOdd);
    rows[j] = _mm512_shuffle_i32x4(low_even, high_even, kEven);
    rows[4 + j] = _mm512_shuffle_i32x4(low_odd, high_odd, kEven);
    rows[8 + j] = _mm512_shuffle_i32x4(low_even, high_even, kOdd);
    rows[12 + j] = _mm512_shuffle_i32x4(low_odd, high_odd, kOdd);
  }
}

inline void prepare_integer_tiles(const int8_t* a, int64_t lda, int64_t rows, int64_t k, void* to) {
  auto* words = static_cast<char*>(to);
  for (int64_t i = 0; i < k; i += kIntegerStep, words += kIntegerTileBytes) {
    const __mmask64 real = first_bytes(k - i);
    __m512i of_rows[IntegerTiles::kRows];
    for (int r = 0; r < IntegerTiles::kRows; ++r) {
      of_rows[r] = _mm512_maskz_loadu_epi8(r < rows ? real : 0, a + r * lda + i);
    }
    transpose(of_rows);
    for (int r = 0; r < IntegerTiles::kRows; ++r) {
      _mm512_storeu_si512(words + r * kIntegerStep, of_rows[r]);
    }
  }
}

// Columns of B as registers read them: in place, but for those at an edge.
class IntegerColumns {
 public:
  explicit IntegerColumns(const IntegerTiles::Operands& o) : o_(o) {}

  struct Place {
    const void* first;
    int64_t stride;
  };
  [[gnu::always_inline]] Place at(int tile, int64_t k) {
    const int64_t column = tile * kIntegerTileColumns, columns = o_.columns - column;
    const int8_t* from = o_.b + column * o_.ldb + k;
    if (columns >= kIntegerTileColumns && k + kIntegerStep <= o_.k) return {from, o_.ldb};
    for (int c = 0; c < kIntegerTileColumns; ++c, from += o_.ldb) {
      const __mmask64 real = c < columns ? first_bytes(o_.k - k) : 0;
      _mm512_store_si512(edge_ + c * kIntegerStep, _mm512_maskz_loadu_epi8(real, from));
    }
    return {edge_, kIntegerStep};
  }

 private:
  const IntegerTiles::Operands& o_;
  alignas(64) int8_t edge_[kIntegerTileBytes];
};

// Prefetches a line of each of the columns after these, while they come from memory.
template <int kColumnTiles>
[[gnu::always_inline]] inline void prefetch_columns(const IntegerTiles::Operands& o, int64_t k) {
  const int8_t* next = o.b + kColumnTiles * kIntegerTileColumns * o.ldb + k;
  for (int c = 0; c < kColumnTiles * kIntegerTileColumns; ++c, next += o.ldb) {
    __builtin_prefetch(next);
  }
}

// Stores sums [columns, rows] of one register to rows of `to`.
inline void store_rows(const int32_t* sums, int64_t rows, int64_t columns, int32_t* to,
                       int64_t stride) {
  __m512i of_rows[16];
  for (int c = 0; c < 16; ++c) of_rows[c] = _mm512_load_si512(sums + c * 16);
  transpose(of_rows);
  const auto real = static_cast<__mmask16>(columns >= 16 ? 0xffff : (1u << columns) - 1);
  for (int r = 0; r < 16; ++r) {
    if (r < rows) _mm512_mask_storeu_epi32(to + r * stride, real, of_rows[r]);
  }
}

// One block of rows: elements [k, end) of K are added to open, [kColumnTiles, column, row].
template <typename T, int kColumnTiles>
void add_slab(const IntegerTiles::Operands& o, int64_t block, int64_t k, int64_t end,
              int32_t* open) {
  constexpr int kSums = kIntegerTileBytes / 4;
  if (k == 0) {
    unroll<kColumnTiles>([](auto i) __attribute__((always_inline)) { T::template zero<i>(); });
  } else {
    unroll<kColumnTiles>([&](auto i) __attribute__((always_inline)) {
      T::template load<i>(open + i * kSums, kIntegerStep);
    });
  }
  IntegerColumns b(o);
  const char* a = o.a + block * o.block_stride + k / kIntegerStep * kIntegerTileBytes;
  for (; k < end; k += kIntegerStep, a += kIntegerTileBytes) {
    T::template load<kIntegerA>(a, kIntegerStep);
    unroll<kColumnTiles>([&](auto i) __attribute__((always_inline)) {
      const auto columns = b.at(i, k);
      T::template load<kIntegerB + i>(columns.first, columns.stride);
      T::template dot_int8<i, kIntegerB + i, kIntegerA>();
    });
    if (block == 0) prefetch_columns<kColumnTiles>(o, k);
  }
  unroll<kColumnTiles>([&](auto i) __attribute__((always_inline)) {
    T::template store<i>(open + i * kSums, kIntegerStep);
  });
}

template <typename T>
void multiply_integer_tiles(const IntegerTiles::Operands& o, int32_t* sums, int64_t stride) {
  using AddSlab = void (*)(const IntegerTiles::Operands&, int64_t, int64_t, int64_t, int32_t*);
  constexpr AddSlab kAddSlab[] = {add_slab<T, 1>, add_slab<T, 2>, add_slab<T, kMostColumnTiles>};
  constexpr int kSums = kIntegerTileBytes / 4;
  alignas(64) int32_t open[kMostRowBlocks * kMostColumnTiles * kSums];
  const int64_t blocks = (o.rows + IntegerTiles::kRows - 1) / IntegerTiles::kRows;
  const int64_t column_tiles = (o.columns + kIntegerTileColumns - 1) / kIntegerTileColumns;
  const int64_t slab = blocks == 1 ? o.k : kIntegerSlabK;
  const AddSlab add = kAddSlab[column_tiles - 1];
  T::configure(kTileStep);
  int64_t k = 0;
  do {  // once even when K is 0
    const int64_t end = k + slab < o.k ? k + slab : o.k;
    for (int64_t block = 0; block < blocks; ++block) {
      add(o, block, k, end, open + block * kMostColumnTiles * kSums);
    }
    k = end;
  } while (k < o.k);
  T::release();
  for (int64_t i = 0; i < blocks * column_tiles; ++i) {
    const int64_t block = i / column_tiles, tile = i % column_tiles;
    const int32_t* from = open + (block * kMostColumnTiles + tile) * kSums;
    const int64_t row = block * IntegerTiles::kRows, column = tile * kIntegerTileColumns;
    store_rows(from, o.rows - row, o.columns - column, sums + row * stride + column, stride);
  }
}

template <typename T>
constexpr IntegerTiles make_integer_tiles() {
  return {T::kMinIntegerRows, prepare_integer_tiles, multiply_integer_tiles<T>};
}

}  // namespace
}  // namespace mixed_gemm::cpu
