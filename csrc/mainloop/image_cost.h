// Terms that the cost models of the convolutions share.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "core/device.h"
#include "problem/conv.h"

namespace mixed_gemm {

// The time to read the input and write the output once, at a share of the bandwidth of memory.
inline double image_us(const ConvProblem& p, double share, const DeviceInfo& d) {
  const ConvShape& s = p.shape;
  const double elements = static_cast<double>(s.images) * s.in_c * s.in_h * s.in_w +
                          static_cast<double>(s.rows()) * s.out_c;
  return elements * (p.element == ElementType::kFloat32 ? 4 : 2) / (d.dram_gb_per_s * share * 1e3);
}

// The longest of `parts`, and a share of the others.
inline double overlapped(std::initializer_list<double> parts, double loss) {
  double longest = 0, sum = 0;
  for (const double us : parts) {
    longest = std::max(longest, us);
    sum += us;
  }
  return longest + loss * (sum - longest);
}

}  // namespace mixed_gemm
