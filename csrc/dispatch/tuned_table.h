// Measured choices, process-wide: for a kind of GPU, a weight shape and a scheme, the fastest
// configuration at some values of M. mixed_gemm/selection/tables.py fills it from the files of the
// package and of mixed_gemm.tune().
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/choice.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct TunedPoint {
  int64_t m = 0;
  Choice choice;
  double us = 0;
};

// Replaces the table by a text of one point a line:
//   op sm sms dtype weight scales group_size zeros n k m config us
// op: "gemm"; weight: a name of core/weight_type.h; scales: one of kScaleTypeNames; group_size -1:
// per channel; zeros 0 or 1. Lines of format 1 are read as well, for as long as weights are packed
// as they were then: without op and scales, and with the bits of integers for weight. Where lines
// repeat a point the last one counts. Returns a sentence for each line that was refused; the others
// are in force.
std::vector<std::string> set_tuned_table(const std::string& text);

// Changes with every set_tuned_table: whatever was derived from the table is stale then.
int tuned_table_generation();

// The point to use for a problem: the one with the least tuned M >= its M, because a kernel that is
// best for a full tile is best for a partly filled one. The table says nothing about an M beyond
// the last point, unless a family won there that only gets better with M.
std::optional<TunedPoint> find_tuned(const GemmProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
