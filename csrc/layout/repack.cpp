#include "layout/repack.h"

#include <algorithm>
#include <cstring>

namespace mixed_gemm {
namespace {

using Layout4 = WeightLayout<Int4>;

constexpr int kOctets = 16;  // words of a row that are transposed together: 128 columns, one line
constexpr uint32_t kZeros = 0x88888888;  // eight times q = 0

// Exchanges the upper half of a with the lower half of b, in every field of 2 * kShift bits.
template <int kShift>
void exchange(uint32_t* __restrict a, uint32_t* __restrict b) {
  constexpr uint32_t kLow = kShift == 16 ? 0x0000ffffu : kShift == 8 ? 0x00ff00ffu : 0x0f0f0f0fu;
  for (int i = 0; i < kOctets; ++i) {
    const uint32_t low = (a[i] & kLow) | (b[i] & kLow) << kShift;
    b[i] = (a[i] >> kShift & kLow) | (b[i] & ~kLow);
    a[i] = low;
  }
}

// Exchanges nibble s of words[i] with nibble i of words[s].
void transpose_nibbles(uint32_t (&words)[8][kOctets]) {
  for (int i = 0; i < 4; ++i) exchange<16>(words[i], words[i + 4]);
  for (const int i : {0, 1, 4, 5}) exchange<8>(words[i], words[i + 2]);
  for (const int i : {0, 2, 4, 6}) exchange<4>(words[i], words[i + 1]);
}

// Loads the words of rows k + 8 * pair + member, in the order of the slots of a packed word; rows
// that do not exist hold q = 0.
void load_rows(const AwqWeight& weight, int64_t k, int64_t octet, int count,
               uint32_t (&words)[8][kOctets]) {
  for (int slot = 0; slot < 8; ++slot) {
    const int64_t row = k + slot % 4 * 8 + slot / 4;
    if (row >= weight.k || count < kOctets) std::fill(words[slot], words[slot] + kOctets, kZeros);
    if (row >= weight.k) continue;
    std::memcpy(words[slot], weight.qweight + row * (weight.n / AwqLayout::kPerWord) + octet,
                4 * count);
  }
}

// Repacks `count` words of every row, from `octet` on, to `filled` octets of columns; those beyond
// `count` are padding. Writing whole lines of 128 bytes instead was no faster.
void repack_octets(const AwqWeight& weight, int64_t octet, int count, int filled, uint8_t* packed) {
  constexpr int kQuads = 4;  // lanes whose words make 16 bytes of one column
  const int64_t k_pad = round_up(weight.k, kPadK);
  const int64_t octet_words = Layout4::place(AwqLayout::kPerWord, 0, k_pad).word;
  alignas(64) uint32_t words[kQuads][8][kOctets];
  for (int64_t k = 0; k < k_pad; k += Layout4::kBlockK) {
    for (int quad = 0; quad < kQuads; ++quad) {
      load_rows(weight, k + 2 * quad, octet, count, words[quad]);
      transpose_nibbles(words[quad]);
    }
    for (int column = 0; column < AwqLayout::kPerWord; ++column) {
      const int nibble = AwqLayout::nibble_of(column);
      uint8_t* to = packed + 4 * Layout4::place(column, k, k_pad).word;
      for (int i = 0; i < filled; ++i, to += 4 * octet_words) {
        const uint32_t block[kQuads] = {words[0][nibble][i], words[1][nibble][i],
                                        words[2][nibble][i], words[3][nibble][i]};
        std::memcpy(to, block, sizeof(block));
      }
    }
  }
}

template <typename Source>
void gather(const Source& weight, uint8_t* packed, const ParallelFor& parallel_for) {
  const int64_t k_pad = round_up(weight.k, kPadK);
  const int64_t words =
      round_up(weight.n, kPadN) * k_pad / WeightLayout<typename Source::Stored>::kPerWord;
  parallel_for(0, words, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t word = begin; word < end; ++word) {
      const uint32_t bits = repacked_word(weight, word, k_pad);
      std::memcpy(packed + 4 * word, &bits, 4);
    }
  });
}

}  // namespace

void repack_awq_columns(const AwqWeight& weight, int64_t n_begin, int64_t n_end, uint8_t* packed) {
  const int64_t octets = (n_end - n_begin) / AwqLayout::kPerWord;
  const int64_t padded = round_up(n_end - n_begin, kPadN) / AwqLayout::kPerWord;
  const int64_t octet_bytes = AwqLayout::kPerWord * round_up(weight.k, kPadK) / 2;
  for (int64_t i = 0; i < padded; i += kOctets) {
    const int count = static_cast<int>(std::min<int64_t>(octets - i, kOctets));
    const int filled = static_cast<int>(std::min<int64_t>(padded - i, kOctets));
    repack_octets(weight, n_begin / AwqLayout::kPerWord + i, count, filled,
                  packed + i * octet_bytes);
  }
}

void repack_awq(const AwqWeight& weight, uint8_t* packed, const ParallelFor& parallel_for) {
  constexpr int64_t kColumns = kOctets * AwqLayout::kPerWord;
  const int64_t column_bytes = round_up(weight.k, kPadK) / 2;
  parallel_for(0, ceil_div(weight.n, kColumns), 1, [&](int64_t begin, int64_t end) {
    repack_awq_columns(weight, begin * kColumns, std::min(end * kColumns, weight.n),
                       packed + begin * kColumns * column_bytes);
  });
}

void repack_gptq(const uint32_t* qweight, const int32_t* perm, int bits, int64_t n, int64_t k,
                 uint8_t* packed, const ParallelFor& parallel_for) {
  if (bits == 8) {
    gather(GptqWeight<Int8>{qweight, perm, bits, n, k}, packed, parallel_for);
  } else {
    gather(GptqWeight<Int4>{qweight, perm, bits, n, k}, packed, parallel_for);
  }
}

}  // namespace mixed_gemm
