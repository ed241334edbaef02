// The gated activation of a row, for any number of lanes.
#pragma once
#include <cstdint>

#include "cpu/vector_activation.h"
#include "problem/gated_activation.h"

namespace mixed_gemm::cpu {
namespace {

// As epilogue/gate.h.
template <int kLanes>
[[gnu::always_inline]] inline typename ActivationVectors<kLanes>::Floats gated(
    const Gate& by, typename ActivationVectors<kLanes>::Floats gate,
    typename ActivationVectors<kLanes>::Floats up) {
  using V = ActivationVectors<kLanes>;
  const typename V::Floats zero = {}, most = zero + by.limit;
  gate = gate > most ? most : gate;
  up = up > most ? most : up;
  up = up < -most ? -most : up;
  switch (by.gating) {
    case Gating::kSilu:
      return V::template activated<Activation::kSilu>(gate) * up;
    case Gating::kGelu:
      return V::template activated<Activation::kGelu>(gate) * up;
    case Gating::kGeluTanh:
      return V::template activated<Activation::kGeluTanh>(gate) * up;
    case Gating::kRelu:
      return V::template activated<Activation::kRelu>(gate) * up;
    case Gating::kSwigluOai:
      break;
  }
  return V::times_sigmoid(gate, by.alpha * gate) * (up + 1.f);
}

// gate[i] becomes the gated activation of gate[i] and up[i].
template <int kLanes>
void gate_row(const Gate& by, float* gate, const float* up, int64_t count) {
  using V = ActivationVectors<kLanes>;
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t rest = count - i;
    V::store(gated<kLanes>(by, V::load(gate + i, rest), V::load(up + i, rest)), gate + i, rest);
  }
}

}  // namespace
}  // namespace mixed_gemm::cpu
