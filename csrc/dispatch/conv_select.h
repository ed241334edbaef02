// Which kernel runs a convolution: what is legal, what it is predicted to take, the choice.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/device_info.h"
#include "dispatch/tile_name.h"
#include "problem/conv.h"
#include "problem/gemm.h"

namespace mixed_gemm {

enum class ConvKind : int { kImplicit, kInt8, kPointwise, kDense };

// `row` is of kConvTileConfigs or, int8, of kConvInt8TileConfigs. Names:
//   implicit_m64n128s4_parallel4   the GEMM of pixels and taps, dequantizing
//   implicit_m16n64s3k8            by blocks of 8 warps that share out K
//   int8_m64n128s4_streamk1        of an int8 convolution
//   pointwise                      nothing to gather: the fpA_intB GEMM of pixels and filter
//   dequantize_conv                dequantize to a dense filter, then the library's convolution
struct ConvCandidate : TileChoice {
  ConvKind kind = ConvKind::kImplicit;
  double predicted_us = 0;
};

std::string config_name(const ConvCandidate& candidate);
std::optional<ConvCandidate> parse_conv_config(const std::string& name);
std::optional<ConvCandidate> parse_conv_int8_config(const std::string& name);

// The convolution as a GEMM, for what only depends on sizes and scheme: tensors are null.
GemmProblem gemm_of(const ConvProblem& problem);
// The same for a pointwise one, whose scales are those of the GEMM.
GemmProblem pointwise_gemm_of(const ConvProblem& problem);

// Reason why this candidate cannot run the problem on the device, or empty.
std::string why_not_conv_candidate(const ConvCandidate& candidate, const ConvProblem& problem,
                                   const DeviceInfo& device);
std::string why_not_conv_int8_candidate(const ConvCandidate& candidate, const ConvShape& shape,
                                        const DeviceInfo& device);

// All legal candidates, the least predicted time first; none where no tile fits the device.
std::vector<ConvCandidate> ranked_conv(const ConvProblem& problem, const DeviceInfo& device);
std::vector<ConvCandidate> ranked_conv_int8(const ConvShape& shape, const DeviceInfo& device);

// The first of them, remembered.
std::optional<ConvCandidate> select_conv(const ConvProblem& problem, const DeviceInfo& device);
std::optional<ConvCandidate> select_conv_int8(const ConvShape& shape, const DeviceInfo& device);

}  // namespace mixed_gemm
