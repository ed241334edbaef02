// The arguments that the trees of scaled_epilogue.cuh are made from: plain data, no CUTLASS.
#pragma once
#include <cstdint>

#include "problem/scaled_mm.h"

namespace mixed_gemm {

struct ScaleVector {
  const float* values = nullptr;
  int stride = 0;  // 0: one value for all, 1: one each
};

// Names a tree.
enum class EpilogueKind : int { kScaled, kBias, kAzp, kAzpPerToken, kBlocks };
constexpr int kNumEpilogueKinds = 5;
constexpr const char* kEpilogueNames[] = {"ScaledEpilogue", "ScaledEpilogueBias",
                                          "ScaledEpilogueAzp", "ScaledEpilogueAzpPerToken",
                                          "BlocksEpilogue"};

struct ScaledEpilogueArgs {
  EpilogueKind kind = EpilogueKind::kScaled;
  ScaleVector scale_a, scale_b;
  const void* bias = nullptr;        // [n] of out_type, or null
  const int32_t* azp_adj = nullptr;  // [n]
  const int32_t* azp = nullptr;      // [m]
  ElementType out_type = ElementType::kFloat16;
};

inline EpilogueKind epilogue_kind(const ScaledMmProblem& p) {
  if (p.block_k > 0) return EpilogueKind::kBlocks;
  if (p.azp_adj == nullptr) return p.bias ? EpilogueKind::kBias : EpilogueKind::kScaled;
  return p.azp ? EpilogueKind::kAzpPerToken : EpilogueKind::kAzp;
}

inline ScaledEpilogueArgs epilogue_args(const ScaledMmProblem& p) {
  ScaledEpilogueArgs args;
  args.kind = epilogue_kind(p);
  args.scale_a = {p.scale_a, static_cast<int>(p.scale_a_stride)};
  args.scale_b = {p.scale_b, static_cast<int>(p.scale_b_stride)};
  args.bias = p.bias;
  args.azp_adj = p.azp_adj;
  args.azp = p.azp;
  args.out_type = p.out;
  return args;
}

}  // namespace mixed_gemm
