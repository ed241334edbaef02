// Where the bits of a code lie in its 32-bit word. layout/weight_layout.h says which code a slot
// holds; nothing else knows how a word is made of its slots.
#pragma once
#include <cstdint>

#include "core/macros.h"
#include "core/weight_type.h"

namespace mixed_gemm {

// Slots are fields of kBits, slot 0 at the lowest bits. A weight type whose converter wants its
// bits elsewhere has a specialisation with both functions.
template <typename Weight>
struct Places {
  static constexpr uint32_t kMask = (1u << Weight::kBits) - 1;

  // The bits that a code, below 2^kBits, sets; the bits of all slots together make the word.
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t spread(uint32_t code, int slot) {
    return code << (Weight::kBits * slot);
  }
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t gather(uint32_t word, int slot) {
    return word >> (Weight::kBits * slot) & kMask;
  }
};

// Floats lie so in the halves of a word that few shifts put a code under the exponents of fp16 and
// bf16 (dequant/float_converter.h): magnitudes beside each other at the lowest bits, signs above
// them. Half `slot / kPerHalf` holds member `slot / kPerHalf` of each pair, as integers have it.
template <typename Weight>
struct FloatPlaces {
  static constexpr int kPerHalf = 16 / Weight::kBits;
  static constexpr int kMagnitudeBits = Weight::kBits - 1;
  static constexpr uint32_t kMagnitudeMask = (1u << kMagnitudeBits) - 1;

  static constexpr MIXED_GEMM_HOST_DEVICE int magnitude_at(int slot) {
    return slot / kPerHalf * 16 + slot % kPerHalf * kMagnitudeBits;
  }
  // A digit of kSigns for each code of a half, the first one the lowest.
  static constexpr MIXED_GEMM_HOST_DEVICE int sign_at(int slot) {
    constexpr uint32_t kSigns = Weight::kBits == 4 ? 0xfecdu : 0xfeu;
    return slot / kPerHalf * 16 + static_cast<int>(kSigns >> (slot % kPerHalf * 4) & 15);
  }
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t spread(uint32_t code, int slot) {
    return (code & kMagnitudeMask) << magnitude_at(slot) | (code >> kMagnitudeBits & 1)
                                                               << sign_at(slot);
  }
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t gather(uint32_t word, int slot) {
    return (word >> magnitude_at(slot) & kMagnitudeMask) | (word >> sign_at(slot) & 1)
                                                               << kMagnitudeBits;
  }
};
template <>
struct Places<E2M1> : FloatPlaces<E2M1> {};
template <>
struct Places<E4M3> : FloatPlaces<E4M3> {};

// Codes that are looked up lie in the order of k, so that each half of a word selects the bytes of
// an mma step at once (dequant/book_converter.h).
struct BookPlaces {
  static constexpr MIXED_GEMM_HOST_DEVICE int at(int slot) {
    return 8 * (slot % 4) + 4 * (slot / 4);
  }
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t spread(uint32_t code, int slot) {
    return (code & 15) << at(slot);
  }
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t gather(uint32_t word, int slot) {
    return word >> at(slot) & 15;
  }
};
template <>
struct Places<NF4> : BookPlaces {};
template <>
struct Places<FP4> : BookPlaces {};

}  // namespace mixed_gemm
