// Copies the rows of tokens to where their choices were sorted to: a thread reads a word of a token
// once and writes it to every row that the token has.
#pragma once
#include <cstdint>

#include "grid/pdl.cuh"

namespace mixed_gemm {

// Rows of words, of 16 bytes where all of them lie so.
template <typename Word>
struct PermuteRowsParams {
  const Word* hidden;
  int64_t hidden_stride;  // in words
  Word* rows;
  int64_t words;  // of a row
  int64_t tokens, choices;
  const int32_t* positions;
  const int32_t* sorted;  // how many rows have a token: the others become zeros
};

// Blocks of x share a token, tokens are blockIdx.y + i * gridDim.y.
template <typename Word>
__global__ void permute_rows_kernel(const PermuteRowsParams<Word> p) {
  pdl_wait();
  pdl_launch_dependents();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= p.words) return;
  const int64_t sorted = *p.sorted;
  for (int64_t token = blockIdx.y; token < p.tokens; token += gridDim.y) {
    const Word word = p.hidden[token * p.hidden_stride + at];
    for (int64_t i = token * p.choices; i < (token + 1) * p.choices; ++i) {
      const int64_t row = p.positions[i];
      if (row >= 0) p.rows[row * p.words + at] = word;
      if (i >= sorted) p.rows[i * p.words + at] = Word{};
    }
  }
}

}  // namespace mixed_gemm
