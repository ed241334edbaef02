// Every k-tile of every output tile is done by one worker, once, and the worker that reduces a
// shared tile knows all the others.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "grid/work_split.h"

namespace mixed_gemm {
namespace {

struct Work {
  SplitK split;
  int tiles_m, tiles_n, k_tiles, count;
};

void PrintTo(const Work& w, std::ostream* out) {
  *out << static_cast<int>(w.split) << ": " << w.tiles_m << " x " << w.tiles_n << " tiles of "
       << w.k_tiles << ", " << w.count;
}

class WorkSplitTest : public testing::TestWithParam<Work> {};

TEST_P(WorkSplitTest, EveryUnitOnce) {
  const Work w = GetParam();
  const WorkSplit work = WorkSplit::make(w.split, w.tiles_m, w.tiles_n, w.k_tiles, w.count);
  std::map<std::pair<int, int>, int> tile_at;
  std::vector<int> times(static_cast<size_t>(w.tiles_m) * w.tiles_n * w.k_tiles);
  std::map<int, std::vector<int>> workers_of;
  for (int worker = 0; worker < work.workers; ++worker) {
    int items = 0;
    for (int done = 0; items == 0 || !work.is_last(worker, done); ++items) {
      const WorkItem item = work.item(worker, done);
      ASSERT_LT(item.k_begin, item.k_end);
      ASSERT_LE(item.k_end, w.k_tiles);
      EXPECT_TRUE(items == 0 || item.k_begin == 0) << "one slot for partial sums a worker";
      const auto at = std::make_pair(item.tile_m, item.tile_n);
      ASSERT_LT(item.tile_m, w.tiles_m);
      ASSERT_LT(item.tile_n, w.tiles_n);
      EXPECT_EQ(tile_at.emplace(at, item.tile).first->second, item.tile);
      for (int k = item.k_begin; k < item.k_end; ++k) {
        ++times[static_cast<size_t>(item.tile_m * w.tiles_n + item.tile_n) * w.k_tiles + k];
      }
      workers_of[item.tile].push_back(worker);
      done += item.k_end - item.k_begin;
    }
    EXPECT_GT(items, 0);
  }
  for (const int count : times) ASSERT_EQ(count, 1);
  EXPECT_EQ(tile_at.size(), static_cast<size_t>(w.tiles_m) * w.tiles_n);
  if (w.split != SplitK::kStreamK) return;
  for (const auto& [tile, workers] : workers_of) {
    if (workers.size() == 1) continue;
    for (size_t i = 1; i < workers.size(); ++i) EXPECT_EQ(workers[i], workers[i - 1] + 1);
    EXPECT_EQ(work.workers_until_end_of(tile, workers.front()), workers.back() + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Splits, WorkSplitTest,
    testing::Values(Work{SplitK::kNone, 3, 5, 7, 1}, Work{SplitK::kParallel, 3, 5, 7, 3},
                    Work{SplitK::kCluster, 9, 2, 8, 8}, Work{SplitK::kStreamK, 1, 1, 64, 64},
                    Work{SplitK::kStreamK, 1, 32, 64, 132}, Work{SplitK::kStreamK, 17, 13, 9, 132},
                    Work{SplitK::kStreamK, 12, 11, 9, 132}, Work{SplitK::kStreamK, 24, 11, 5, 132},
                    Work{SplitK::kStreamK, 16, 64, 3, 132}, Work{SplitK::kStreamK, 5, 27, 2, 11},
                    Work{SplitK::kStreamK, 7, 19, 33, 264}, Work{SplitK::kStreamK, 2, 67, 1, 133}));

}  // namespace
}  // namespace mixed_gemm
