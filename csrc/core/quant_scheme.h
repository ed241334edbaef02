// Vocabulary of the quantization: how a weight is stored and what its real value is.
#pragma once
#include <cstdint>

namespace mixed_gemm {

enum class ElementType : int { kFloat16, kBFloat16, kFloat32 };
constexpr const char* kElementTypeNames[] = {"float16", "bfloat16", "float32"};

// kSub: w = (q - zero) * scale (AWQ, GPTQ, HQQ). kAdd: w = q * scale + zero (TensorRT-LLM, MNN).
enum class ZeroMode : int { kNone, kSub, kAdd };
constexpr const char* kZeroModeNames[] = {"none", "sub", "add"};

enum class Activation : int { kIdentity, kRelu, kRelu6, kGelu, kGeluTanh, kSilu };
constexpr const char* kActivationNames[] = {"identity", "relu",      "relu6",
                                            "gelu",     "gelu_tanh", "silu"};

struct QuantScheme {
  int bits = 4;  // 4 or 8, signed
  int64_t group_size =
      0;  // elements of K that share a scale; per channel is K itself, never -1 below ops/
  ZeroMode zero_mode = ZeroMode::kNone;
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace mixed_gemm
