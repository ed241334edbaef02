// The form of a weight's scales: how they are stored, which codes share one, and zero points.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// kSub: w = (q - zero) * scale (AWQ, GPTQ, HQQ). kAdd: w = q * scale + zero (TensorRT-LLM, MNN).
enum class ZeroMode : int { kNone, kSub, kAdd };
constexpr const char* kZeroModeNames[] = {"none", "sub", "add"};

// kActivations: the type of the activations, whichever that is. why_not_scheme (problem/gemm.h)
// says which weight has which of these.
enum class ScaleType : int { kActivations, kE8M0, kE4M3, kFloat32 };
constexpr const char* kScaleTypeNames[] = {"same", "e8m0", "e4m3", "float32"};
// The bytes of a scale, where activations are 16-bit floats.
constexpr int scale_bytes(ScaleType type) {
  constexpr int kBytes[] = {2, 1, 1, 4};
  return kBytes[static_cast<int>(type)];
}

struct ScaleForm {
  ScaleType type = ScaleType::kActivations;
  int64_t group = 0;  // elements of K that share a scale; per channel is K itself, never -1 below
                      // ops/
  ZeroMode zeros = ZeroMode::kNone;
};

}  // namespace mixed_gemm
