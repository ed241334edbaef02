// Terms that the cost models of the families with quantized weights share.
#pragma once
#include <algorithm>

#include "core/choice.h"
#include "mainloop/scale_mode.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Effective values in microseconds and shares, fitted with those of multistage/cost.cpp.
constexpr double kGemmLaunchUs = 3.15;    // launch and pipeline prologue
constexpr double kGemmDramShare = 0.819;  // of the memory bandwidth

// The work of converting a weight, over int4 with a scale per group of 64 and more.
struct ConversionWork {
  double no_scale, zero, fine, int8;
};

inline double conversion_work(const GemmProblem& p, const ScaleMode& mode, bool fine,
                              const ConversionWork& work) {
  return (is_scaled(mode) ? 1.0 : work.no_scale) * (mode.zeros ? work.zero : 1.0) *
         (fine ? work.fine : 1.0) * (bits_of(p.scheme.weight) > 4 ? work.int8 : 1.0);
}

inline double weight_bytes(const GemmProblem& p) {
  const ScaleForm& scales = p.scheme.scales;
  const double rows = num_groups(p) * (scales.zeros == ZeroMode::kNone ? 1 : 2);
  return static_cast<double>(p.n) * p.k * bits_of(p.scheme.weight) / 8 +
         scale_bytes(scales.type) * rows * p.n;
}

// The time of the second kernel of a parallel split.
inline double reduce_us(const Choice& c, const GemmProblem& p, const DeviceInfo& d,
                        double launch_us, double speed) {
  const double sum_bytes = 4.0 * p.m * round_up(p.n, 8);
  return launch_us + c.slices * sum_bytes / (d.dram_gb_per_s * speed * 1e3);
}

}  // namespace mixed_gemm
