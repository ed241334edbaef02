// The choice of a family and of one of its kernels, once for all kinds of problems: list candidates
// that are worth a prediction, keep those that why_not accepts, predict microseconds for each and
// take the least, or the one that was measured to be the fastest, where that was done.
//
// Problem: one of dispatch/problems.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/family.h"
#include "problem/block_gemm.h"
#include "problem/conv.h"
#include "problem/gemm.h"
#include "problem/grouped_gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

template <typename Problem>
const Family<Problem>& family_of(const Choice& choice);

template <typename Problem>
std::string config_name(const Choice& choice);
template <typename Problem>
std::optional<Choice> parse_config(const std::string& name);

// Reason why this choice cannot run the problem on the device, or empty.
template <typename Problem>
std::string why_not(const Choice& choice, const Problem& problem, const DeviceInfo& device);

template <typename Problem>
double predict_us(const Choice& choice, const Problem& problem, const DeviceInfo& device);

// All legal choices, the least predicted time first. Empty where none of them is to run: the device
// has too little shared memory for any tile, or the output has more tiles than can be counted;
// never for a GemmProblem.
template <typename Problem>
std::vector<Choice> ranked(const Problem& problem, const DeviceInfo& device);

// Says why that list is empty.
template <typename Problem>
std::string why_none(const Problem& problem, const DeviceInfo& device);

struct Selection {
  Choice choice;
  std::string reason;  // in words, for plan()
};

// ranked: the list of this problem and device, not empty; plan() has it anyway.
template <typename Problem>
Selection select(const Problem& problem, const DeviceInfo& device,
                 const std::vector<Choice>& ranked);

// The same choice, remembered: ranking costs as much as a small kernel runs. None: see why_none.
template <typename Problem>
std::optional<Choice> choose(const Problem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
