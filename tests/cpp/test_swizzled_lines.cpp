// also: nvcc
// The shared-memory permutations are bijections and free of bank conflicts, checked by counting
// banks.
#include "layout/swizzled_lines.h"

#include <gtest/gtest.h>

#include <set>

namespace mixed_gemm {
namespace {

// ldmatrix reads 8 chunks of 16 bytes per phase; a conflict-free phase covers all 32 banks, so all
// 8 bank groups.
template <typename Offset>
void expect_conflict_free(Offset offset_of_row) {
  std::set<int> bank_groups;
  for (int row = 0; row < 8; ++row) bank_groups.insert(offset_of_row(row) % 128 / kChunkBytes);
  EXPECT_EQ(bank_groups.size(), 8u);
}

TEST(SwizzledLines, IsABijection) {
  std::set<int> seen;
  for (int row = 0; row < 128; ++row) {
    for (int chunk = 0; chunk < kChunksPerLine; ++chunk)
      seen.insert(SwizzledLines::offset(row, chunk));
  }
  EXPECT_EQ(seen.size(), 128u * 8);
  EXPECT_EQ(*seen.rbegin(), 128 * 128 - kChunkBytes);
}

TEST(SwizzledLines, LdmatrixMeetsNoBankConflict) {
  for (int row0 = 0; row0 < 128; row0 += 8) {
    for (int chunk = 0; chunk < 8; ++chunk) {
      expect_conflict_free([&](int row) { return SwizzledLines::offset(row0 + row, chunk); });
    }
  }
}

template <typename Weight>
void check_weight_tile() {
  using Tile = SwizzledWeightLines<Weight>;
  constexpr int kColumns = 256;
  std::set<int> seen;
  for (int column = 0; column < kColumns; ++column) {
    for (int block = 0; block < Tile::kBlocks; ++block)
      seen.insert(Tile::offset_of_column(column, block));
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(kColumns * Tile::kBlocks));
  EXPECT_EQ(*seen.rbegin(), kColumns * 64 * Weight::kBits / 8 - kChunkBytes);
  for (int column0 = 0; column0 < kColumns; column0 += 8) {
    for (int block = 0; block < Tile::kBlocks; ++block) {
      expect_conflict_free(
          [&](int column) { return Tile::offset_of_column(column0 + column, block); });
    }
  }
}
TEST(SwizzledWeightLines, Int4) { check_weight_tile<Int4>(); }
TEST(SwizzledWeightLines, Int8) { check_weight_tile<Int8>(); }

// A copying thread computes its place once and then steps by whole passes of lines.
template <typename Weight>
void check_passes(int lines_per_pass) {
  using Tile = SwizzledWeightLines<Weight>;
  for (int line = 0; line < 64; ++line) {
    for (int chunk = 0; chunk < 8; ++chunk) {
      EXPECT_EQ(Tile::offset(line + lines_per_pass, chunk),
                Tile::offset(line, chunk) + lines_per_pass * 128);
    }
  }
}
TEST(SwizzledWeightLines, PassesKeepTheirPhase) {
  for (const int lines : {16, 32}) {
    check_passes<Int4>(lines);
    check_passes<Int8>(lines);
  }
}

}  // namespace
}  // namespace mixed_gemm
