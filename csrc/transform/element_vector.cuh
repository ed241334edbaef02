// Some neighbouring elements of a row, in registers as fp32.
#pragma once
#include <cstdint>

namespace mixed_gemm {

constexpr int kElementVector = 8;

// Loads elements, those that exist; the others are 0. aligned: the row lies on 16 bytes here.
template <typename Element>
__device__ void load_elements(const Element* from, int64_t left, bool aligned, float* to) {
  alignas(16) Element elements[kElementVector];
  if (aligned && left >= kElementVector) {
    constexpr int kQuads = kElementVector * sizeof(Element) / sizeof(uint4);
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      reinterpret_cast<uint4*>(elements)[i] = reinterpret_cast<const uint4*>(from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < kElementVector; ++i) elements[i] = i < left ? from[i] : Element(0.f);
  }
#pragma unroll
  for (int i = 0; i < kElementVector; ++i) to[i] = static_cast<float>(elements[i]);
}

// The same, of a row of which it is known when the kernel is compiled: kAligned, that it lies on 16
// bytes and has all of these elements.
template <typename Element, bool kAligned>
__device__ void load_elements(const Element* from, int64_t left, float* to) {
  if constexpr (kAligned) {
    load_elements(from, kElementVector, true, to);
  } else {
    load_elements(from, left, false, to);
  }
}

// Rounds each to nearest even and stores those that exist.
template <typename Element>
__device__ void store_elements(const float* from, Element* to, int64_t left, bool aligned) {
  alignas(16) Element elements[kElementVector];
#pragma unroll
  for (int i = 0; i < kElementVector; ++i) elements[i] = Element(from[i]);
  if (aligned && left >= kElementVector) {
    constexpr int kQuads = kElementVector * sizeof(Element) / sizeof(uint4);
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(elements)[i];
    return;
  }
#pragma unroll
  for (int i = 0; i < kElementVector; ++i) {
    if (i < left) to[i] = elements[i];
  }
}

}  // namespace mixed_gemm
