// The sum of pieces of 16 bytes: in fp32, in the order in which they are added, rounded once.
#pragma once
#include "ranks/inbox.h"

namespace mixed_gemm {

template <typename Element>
class PieceSum {
 public:
  __device__ PieceSum() {
#pragma unroll
    for (float& total : totals_) total = -0.f;  // to which a first -0 may be added
  }
  __device__ void add(const Piece& piece) {
    const auto* elements = reinterpret_cast<const Element*>(piece.data);
#pragma unroll
    for (int i = 0; i < kElements; ++i) totals_[i] += static_cast<float>(elements[i]);
  }
  __device__ Piece rounded() const {
    Piece piece;
    auto* elements = reinterpret_cast<Element*>(piece.data);
#pragma unroll
    for (int i = 0; i < kElements; ++i) elements[i] = Element(totals_[i]);
    return piece;
  }

 private:
  static constexpr int kElements = kPieceBytes / sizeof(Element);
  float totals_[kElements];
};

}  // namespace mixed_gemm
