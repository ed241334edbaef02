#include "grouped/plan.h"
#include "grouped_wgmma/config.h"
#include "grouped_wgmma/family.h"
#include "wgmma/family.h"

namespace mixed_gemm {
namespace {

struct Kernels {
  static constexpr const auto& kRows = kGroupedWgmmaRows;
  static constexpr bool kHasClusters = false;
  // Blocks of few rows and wide columns are slow where an SM has one, and problems of one weight
  // would split K then: 8 of 4.5 us and 110 of 81 (H200; Qwen3's and Mixtral's second products).
  static double correction(int row, const GemmProblem& equal, const DeviceInfo& device) {
    const TileConfig& tile = kWgmmaTileConfigs[kRows[row]];
    const bool alone = ceil_div(equal.n, tile.n) <= device.sm_count;
    return alone && tile.m <= 16 ? 1.4 : 1;
  }
  static int64_t tile(int row) { return kWgmmaTileConfigs[kRows[row]].m; }
  static std::string why_not(int, const GroupedGemmProblem& p) {
    if (!is_grouped_wgmma_compiled(p.gemm.scheme.weight, wgmma_mode(p.gemm.scheme, p.gemm.k))) {
      return why_not_compiled(p.gemm.scheme);
    }
    if (p.gemm.k % kTileK == 0) return "";
    // A k-tile that ends behind K would bring scales of the next expert.
    return "K must be a multiple of " + std::to_string(kTileK) + ", got " +
           std::to_string(p.gemm.k);
  }
};
using Plan = GroupedPlan<Wgmma, Kernels>;

TileUse tile_use(const Choice& c, const GroupedGemmProblem& p) {
  return Wgmma::plan.tile(Plan::of_base(c), p.gemm);
}

}  // namespace

const Family<GroupedGemmProblem> GroupedWgmma::plan = {
    "grouped_wgmma", Plan::choices,    Plan::config, Plan::parse,
    Plan::why_not,   Plan::predict_us, tile_use};

}  // namespace mixed_gemm
