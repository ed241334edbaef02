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

}  // namespace mixed_gemm
