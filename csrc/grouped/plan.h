// The plans of families whose rows belong to experts, from those of the families of one weight: the
// kernels are theirs. `grouped_` stands in front of their names.
#pragma once
#include <iterator>

#include "core/family.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

// How many blocks of `tile` rows there are on average, where each row takes an expert by chance:
// the host does not know the offsets.
double mean_row_blocks(int64_t rows, int64_t experts, int64_t tile);

// A product of one weight that has as many tiles of so many rows as are made on average: the
// columns of all row blocks beside each other.
GemmProblem equal_problem(const GroupedGemmProblem& problem, int64_t tile);

// Reason why tensor cores do not multiply it by tiles of so many rows, or empty.
std::string why_not_grouped(const GroupedGemmProblem& problem, int64_t tile);

// Reason why a grid cannot have a row block for each place along y, and one more for the rows of no
// expert, or empty.
std::string why_not_along_y(const GroupedGemmProblem& problem, int64_t tile);

// Base: a family of GemmProblem. Kernels: kRows, the rows of its table that are compiled for
// experts; tile(row), the rows of a row block; correction(), the factor of the base's prediction;
// why_not(row, problem), reasons beside those of the base.
template <typename Base, typename Kernels>
struct GroupedPlan {
  static constexpr int kCount = static_cast<int>(std::size(Kernels::kRows));

  static Choice of_base(Choice c) {
    c.row = Kernels::kRows[c.row];
    return c;
  }
  // The same choice among the rows that are compiled; false: it is none of them.
  static bool from_base(Choice& c) {
    for (int row = 0; row < kCount; ++row) {
      if (Kernels::kRows[row] != c.row) continue;
      c.row = row;
      return c.split == SplitK::kNone || (c.split == SplitK::kCluster && Kernels::kHasClusters);
    }
    return false;
  }
  static std::vector<Choice> choices() {
    std::vector<Choice> found;
    for (Choice c : Base::plan.choices()) {
      if (from_base(c)) found.push_back(c);
    }
    return found;
  }
  static std::string config(const Choice& c) { return "grouped_" + Base::plan.config(of_base(c)); }
  static bool parse(const std::string& name, Choice& c) {
    const std::string prefix = "grouped_";
    if (name.compare(0, prefix.size(), prefix) != 0) return false;
    return Base::plan.parse(name.substr(prefix.size()), c) && from_base(c);
  }
  static std::string why_not(const Choice& c, const GroupedGemmProblem& p,
                             const DeviceInfo& device) {
    for (const std::string& reason :
         {why_not_grouped(p, Kernels::tile(c.row)), Kernels::why_not(c.row, p),
          Base::plan.why_not(of_base(c), equal_problem(p, Kernels::tile(c.row)), device)}) {
      if (!reason.empty()) return reason;
    }
    return "";
  }
  static double predict_us(const Choice& c, const GroupedGemmProblem& p, const DeviceInfo& d) {
    const GemmProblem equal = equal_problem(p, Kernels::tile(c.row));
    return Base::plan.predict_us(of_base(c), equal, d) * Kernels::correction(c.row, equal, d);
  }
};

}  // namespace mixed_gemm
