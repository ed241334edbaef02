#include "layout/pack_weight.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

// One column's codes of one block of K, whose places follow one another: kBlockK codes and the
// kLanes words that hold them. The places are those of the first block, known to the compiler, so
// that a code takes a shift and an or.
template <typename Weight>
struct Block {
  using Layout = WeightLayout<Weight>;
  static constexpr int kCodes = Layout::kBlockK;
  static constexpr int kLanes = kCodes / Layout::kPerWord;
  using Words = std::array<uint32_t, kLanes>;

  static constexpr auto kPlaces = [] {
    std::array<typename Layout::Place, kCodes> places{};
    for (int i = 0; i < kCodes; ++i) places[i] = Layout::place(0, i, kPadK);
    return places;
  }();

  static Words pack(const int8_t* q) {
    Words words{};
#pragma GCC unroll 32
    for (int i = 0; i < kCodes; ++i) {
      const auto code = static_cast<uint32_t>(q[i] + Weight::kBias) & Layout::kMask;
      words[kPlaces[i].word] |= Places<Weight>::spread(code, kPlaces[i].slot);
    }
    return words;
  }

  static void unpack(const Words& words, int8_t* q) {
#pragma GCC unroll 32
    for (int i = 0; i < kCodes; ++i) {
      const uint32_t code = Places<Weight>::gather(words[kPlaces[i].word], kPlaces[i].slot);
      q[i] = static_cast<int8_t>(static_cast<int>(code) - Weight::kBias);
    }
  }
};

// Columns that are worth a task of their own: about 20,000 codes.
int64_t columns_of_task(int64_t k) { return std::max<int64_t>(1, 20000 / std::max<int64_t>(1, k)); }

template <typename Weight>
void pack(const int8_t* q, int64_t q_stride, int64_t n, int64_t k, uint8_t* packed,
          const ParallelFor& parallel_for) {
  using B = Block<Weight>;
  constexpr auto kZero = static_cast<int8_t>(Weight::kZero - Weight::kBias);
  const int64_t k_pad = round_up(k, kPadK);
  parallel_for(0, round_up(n, kPadN), columns_of_task(k), [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t i = 0; i < k_pad; i += B::kCodes) {
        const int64_t there = column < n ? std::clamp<int64_t>(k - i, 0, B::kCodes) : 0;
        std::array<int8_t, B::kCodes> padded;
        const int8_t* codes = there == B::kCodes ? q + column * q_stride + i : padded.data();
        if (there < B::kCodes) {
          padded.fill(kZero);
          if (there > 0) std::memcpy(padded.data(), q + column * q_stride + i, there);
        }
        const auto words = B::pack(codes);
        std::memcpy(packed + 4 * B::Layout::place(column, i, k_pad).word, words.data(),
                    sizeof(words));
      }
    }
  });
}

template <typename Weight>
void unpack(const uint8_t* packed, int64_t n, int64_t k, int8_t* q,
            const ParallelFor& parallel_for) {
  using B = Block<Weight>;
  const int64_t k_pad = round_up(k, kPadK);
  parallel_for(0, n, columns_of_task(k), [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) {
      int8_t* to = q + column * k;
      for (int64_t i = 0; i < k; i += B::kCodes) {
        typename B::Words words;
        std::memcpy(words.data(), packed + 4 * B::Layout::place(column, i, k_pad).word,
                    sizeof(words));
        std::array<int8_t, B::kCodes> codes;
        B::unpack(words, codes.data());
        std::memcpy(to + i, codes.data(), std::min<int64_t>(B::kCodes, k - i));
      }
    }
  });
}

}  // namespace

void pack_weight(WeightType type, const int8_t* q, int64_t q_stride, int64_t n, int64_t k,
                 uint8_t* packed, const ParallelFor& parallel_for) {
  with_weight(
      type, [&](auto weight) { pack<decltype(weight)>(q, q_stride, n, k, packed, parallel_for); });
}

void unpack_weight(WeightType type, const uint8_t* packed, int64_t n, int64_t k, int8_t* q,
                   const ParallelFor& parallel_for) {
  with_weight(type, [&](auto weight) { unpack<decltype(weight)>(packed, n, k, q, parallel_for); });
}

}  // namespace mixed_gemm
