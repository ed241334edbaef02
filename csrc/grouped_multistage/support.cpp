#include "grouped/plan.h"
#include "grouped_multistage/config.h"
#include "grouped_multistage/family.h"
#include "multistage/family.h"

namespace mixed_gemm {
namespace {

struct Kernels {
  static constexpr const auto& kRows = kGroupedTileRows;
  static constexpr bool kHasClusters = false;
  static double correction(int, const GemmProblem&, const DeviceInfo&) { return 1; }
  static int64_t tile(int row) { return kTileConfigs[kRows[row]].m; }
  static std::string why_not(int row, const GroupedGemmProblem& p) {
    const int mode = multistage_mode(p.gemm.scheme, p.gemm.k);
    if (!is_grouped_multistage_compiled(p.gemm.scheme.weight, mode)) {
      return why_not_compiled(p.gemm.scheme);
    }
    return why_not_along_y(p, tile(row));
  }
};
using Plan = GroupedPlan<Multistage, Kernels>;

TileUse tile_use(const Choice& c, const GroupedGemmProblem& p) {
  return Multistage::plan.tile(Plan::of_base(c), p.gemm);
}

}  // namespace

const Family<GroupedGemmProblem> GroupedMultistage::plan = {
    "grouped_multistage", Plan::choices,    Plan::config, Plan::parse,
    Plan::why_not,        Plan::predict_us, tile_use};

}  // namespace mixed_gemm
