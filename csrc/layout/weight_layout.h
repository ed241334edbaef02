// The one packed layout, TensorRT-LLM's ColumnMajorTileInterleave<64, I>, as a constexpr bijection
// between a weight (n, k) and its place (32-bit word, element slot in the word). Packers, CPU
// kernels and CUDA kernels all use it.
//
// A tile is 64 elements of K for I neighbouring columns, stored as one 128-byte line: column n % I
// owns 128 / I bytes of it. Inside a column the tile is cut into blocks of 128 / bits elements (16
// bytes), and word r of a block holds what lane r of a quad needs for mma.m16n8k16: k = {2r, 2r+1,
// 8+2r, 8+2r+1, ...}. Inside a word the first elements of the pairs fill the low half and the
// second ones the high half, so that one lop3 or prmt yields a half2. layout/code_places.h says
// which bits of the word belong to a slot.
#pragma once
#include <cstdint>

#include "core/macros.h"
#include "core/quant_scheme.h"
#include "core/tile.h"
#include "core/weight_type.h"

namespace mixed_gemm {

constexpr int kLayoutVersion = 1;
constexpr int kLineBytes = 128;
constexpr int kPadN = 64,
              kPadK =
                  64;  // the packed weight is padded to these; a slice of 64 columns stands alone

template <typename Weight>
struct WeightLayout {
  static constexpr int kBits = Weight::kBits;
  static_assert(kBits == 4 || kBits == 8, "codes that fill words");
  static constexpr int kInterleave = 16 / kBits;  // I: columns that share a 128-byte line
  static constexpr int kPerWord = 32 / kBits;     // elements in a 32-bit word
  static constexpr int kBlockK = 128 / kBits;     // elements in 16 bytes
  static constexpr int kBlocksPerTile = kTileK / kBlockK;
  static constexpr uint32_t kMask = (1u << kBits) - 1;

  struct Place {
    int64_t word;  // index of the 32-bit word in the packed weight
    int slot;      // element in the word: its bits are those of Places
  };
  struct Element {
    int64_t n, k;
  };

  // Slot s of a word holds pair s % (kPerWord / 2), first member in the low half of the word,
  // second in the high.
  static constexpr MIXED_GEMM_HOST_DEVICE int slot_of(int pair, int member) {
    return pair + member * (kPerWord / 2);
  }

  static constexpr MIXED_GEMM_HOST_DEVICE Place place(int64_t n, int64_t k, int64_t k_pad) {
    const int in_block = static_cast<int>(k % kBlockK);
    const int pair = in_block / 8, quad = in_block % 8 / 2, member = in_block % 2;
    const int block = static_cast<int>(k % kTileK) / kBlockK;
    const int64_t line = n / kInterleave * (k_pad / kTileK) + k / kTileK;
    const int64_t word =
        line * (kLineBytes / 4) + n % kInterleave * (kTileK / kPerWord) + block * 4 + quad;
    return {word, slot_of(pair, member)};
  }

  // An element of a word of one column group (I columns, all of K): n is the column within the
  // group. Computed by shifts alone, without a division.
  static constexpr MIXED_GEMM_HOST_DEVICE Element element_in_group(int64_t word, int slot) {
    const int64_t k_tile = word / (kLineBytes / 4);
    const int in_line = static_cast<int>(word % (kLineBytes / 4));
    const int in_column = in_line % (kTileK / kPerWord);
    const int pair = slot % (kPerWord / 2), member = slot / (kPerWord / 2);
    return {in_line / (kTileK / kPerWord),
            k_tile * kTileK + in_column / 4 * kBlockK + pair * 8 + in_column % 4 * 2 + member};
  }

  static constexpr MIXED_GEMM_HOST_DEVICE Element element(int64_t word, int slot, int64_t k_pad) {
    const int64_t words_per_group = k_pad / kTileK * (kLineBytes / 4);
    const Element e = element_in_group(word % words_per_group, slot);
    return {word / words_per_group * kInterleave + e.n, e.k};
  }

  static constexpr int64_t packed_bytes(int64_t n, int64_t k) {
    return round_up(n, kPadN) * round_up(k, kPadK) * kBits / 8;
  }
};

}  // namespace mixed_gemm
