#include "grouped/plan.h"
#include "grouped_skinny/config.h"
#include "grouped_skinny/family.h"
#include "skinny/family.h"

namespace mixed_gemm {
namespace {

struct Kernels {
  static constexpr const auto& kRows = kGroupedSkinnyRows;
  static constexpr bool kHasClusters = true;
  static double correction(int, const GemmProblem&, const DeviceInfo&) { return 1; }
  static int64_t tile(int row) { return 8 * kSkinnyConfigs[kRows[row]].m_tiles; }
  static std::string why_not(int row, const GroupedGemmProblem& p) {
    if (grouped_skinny_mode(row, p.gemm.scheme, p.gemm.k) < 0) {
      return why_not_compiled(p.gemm.scheme);
    }
    return why_not_along_y(p, tile(row));
  }
};
using Plan = GroupedPlan<Skinny, Kernels>;

}  // namespace

const Family<GroupedGemmProblem> GroupedSkinny::plan = {
    "grouped_skinny", Plan::choices, Plan::config, Plan::parse, Plan::why_not, Plan::predict_us};

}  // namespace mixed_gemm
