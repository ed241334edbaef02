// also: nvcc
// Rows of scales in the stages of wgmma kernels: every step of 16 k finds its group's, whatever the
// group size and wherever a run begins.
#include <gtest/gtest.h>

#include "wgmma/staged_rows.h"

namespace mixed_gemm {
namespace {

constexpr int kTestedK = 2048, kTestedTiles = kTestedK / kTileK;

class StagedRowsTest : public testing::TestWithParam<int> {
 protected:
  // The group of a step, counted from the first k.
  static int group_of_step(int step) {
    return step / static_cast<int>(ceil_div(GetParam(), kMmaK));
  }
  static int group_of_tile(int tile) { return group_of_step(tile * StagedRows::kSteps); }
  const StagedRows rows_{GetParam(), kTestedK};
};

TEST_P(StagedRowsTest, StepsOfARowShareItsGroup) {
  ASSERT_EQ(rows_.of_tile * rows_.steps_per_row, StagedRows::kSteps);
  for (int step = 0; step < kTestedTiles * StagedRows::kSteps; ++step) {
    const int first = step - step % StagedRows::kSteps % rows_.steps_per_row;
    ASSERT_EQ(group_of_step(step), group_of_step(first)) << step;
  }
}

TEST_P(StagedRowsTest, RowsOfACopyAreConsecutiveGroups) {
  ASSERT_EQ(rows_.of_tile % rows_.of_copy, 0);
  for (int tile = 0; tile < kTestedTiles; ++tile) {
    for (int row = 0; row < rows_.of_tile; ++row) {
      const int step = tile * StagedRows::kSteps, in_copy = row % rows_.of_copy;
      ASSERT_EQ(group_of_step(step + row * rows_.steps_per_row),
                group_of_step(step + (row - in_copy) * rows_.steps_per_row) + in_copy)
          << tile << ' ' << row;
    }
  }
}

// The scales at hand are those of the last k-tile that brought some.
TEST_P(StagedRowsTest, ScalesAtHandAreTheGroups) {
  for (int begin = 0; begin < kTestedTiles; ++begin) {
    GroupStarts starts(rows_, begin, group_of_tile);
    int at_hand = -1, brought = 0;
    for (int tile = begin; tile < kTestedTiles; ++tile) {
      const int group = group_of_tile(tile);
      if (starts.enter(rows_, tile)) at_hand = group, ++brought;
      ASSERT_EQ(at_hand, group) << begin << ' ' << tile;
    }
    if (rows_.of_tile == 1) {  // none is brought twice
      ASSERT_EQ(brought, group_of_tile(kTestedTiles - 1) - group_of_tile(begin) + 1) << begin;
    } else {
      ASSERT_EQ(brought, kTestedTiles - begin);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, StagedRowsTest,
                         testing::Values(16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512,
                                         1024, 2048));

}  // namespace
}  // namespace mixed_gemm
