#include "layout/pack_weight.h"

#include <cstring>

#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

template <typename Weight>
void pack(const int8_t* q, int64_t q_stride, int64_t n, int64_t k, uint8_t* packed,
          const ParallelFor& parallel_for) {
  using Layout = WeightLayout<Weight>;
  const int64_t k_pad = round_up(k, kPadK);
  const int64_t words_per_column = k_pad / Layout::kPerWord;
  parallel_for(0, round_up(n, kPadN) * words_per_column, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t word = begin; word < end; ++word) {
      uint32_t bits = 0;
      for (int slot = 0; slot < Layout::kPerWord; ++slot) {
        const auto e = Layout::element(word, slot, k_pad);
        const int code =
            e.n < n && e.k < k ? q[e.n * q_stride + e.k] + Weight::kBias : Weight::kZero;
        bits |= Places<Weight>::spread(static_cast<uint32_t>(code) & Layout::kMask, slot);
      }
      std::memcpy(packed + 4 * word, &bits, 4);
    }
  });
}

template <typename Weight>
void unpack(const uint8_t* packed, int64_t n, int64_t k, int8_t* q,
            const ParallelFor& parallel_for) {
  using Layout = WeightLayout<Weight>;
  const int64_t k_pad = round_up(k, kPadK);
  parallel_for(0, n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        const auto place = Layout::place(i, j, k_pad);
        uint32_t bits;
        std::memcpy(&bits, packed + 4 * place.word, 4);
        q[i * k + j] = static_cast<int8_t>(
            static_cast<int>(Places<Weight>::gather(bits, place.slot)) - Weight::kBias);
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
