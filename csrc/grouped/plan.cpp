#include "grouped/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "grouped/row_blocks.h"

namespace mixed_gemm {

// The rows of an expert are Poisson's: the sum over j of the chance of more than j tiles. With many
// rows the last block of an expert is half full.
double mean_row_blocks(int64_t rows, int64_t experts, int64_t tile) {
  constexpr double kManyRows = 64;
  const double mean = static_cast<double>(rows) / static_cast<double>(experts);
  if (experts <= 1) return static_cast<double>(ceil_div(rows, tile));
  if (mean > kManyRows) {
    return static_cast<double>(experts) * std::max(1.0, mean / static_cast<double>(tile) + 0.5);
  }
  double blocks = 0, chance = std::exp(-mean);  // of exactly `count` rows
  constexpr int kMostCounted = 192;
  for (int count = 1; count < kMostCounted; ++count) {
    chance *= mean / count;
    blocks += chance * static_cast<double>(ceil_div(count, tile));
  }
  return std::max(1.0, blocks * static_cast<double>(experts));
}

GemmProblem equal_problem(const GroupedGemmProblem& problem, int64_t tile) {
  GemmProblem one = problem.gemm;
  const double blocks = mean_row_blocks(std::max<int64_t>(one.m, 1), problem.experts, tile);
  one.m = std::clamp<int64_t>(std::llround(static_cast<double>(one.m) / blocks), 1, tile);
  one.n = std::llround(static_cast<double>(one.n) * blocks);
  return one;
}

std::string why_not_grouped(const GroupedGemmProblem& p, int64_t tile) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 256;
  if (p.experts == 0) return "has no experts to take rows";
  if (p.gemm.k == 0) return "has no K to multiply";
  const int64_t blocks = most_row_blocks(p.gemm.m, p.experts, tile);
  if (p.experts > kMost || blocks * ceil_div(p.gemm.n, 16) > kMost) {
    return "has more tiles than " + std::to_string(kMost) + ", which are all that can be counted";
  }
  return "";
}

std::string why_not_along_y(const GroupedGemmProblem& p, int64_t tile) {
  constexpr int64_t kMaxGridY = 65535;
  const int64_t blocks = most_row_blocks(p.gemm.m, p.experts, tile) + 1;
  if (blocks <= kMaxGridY) return "";
  return "has up to " + std::to_string(blocks) + " blocks of " + std::to_string(tile) +
         " rows, M=" + std::to_string(p.gemm.m) + " of E=" + std::to_string(p.experts) +
         ", and a grid holds " + std::to_string(kMaxGridY);
}

}  // namespace mixed_gemm
