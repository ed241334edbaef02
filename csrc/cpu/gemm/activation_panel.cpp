#include "cpu/gemm/activation_panel.h"

#include <cstring>

namespace mixed_gemm::cpu {
namespace {

constexpr int64_t kChunk = 256;  // elements of K converted at a time, 16 KB of stack for 16 rows

int log2_of_padded_rows(int64_t rows) {
  int choice = 0;
  while ((1 << choice) < rows) ++choice;
  return choice;
}

template <int kRows>
void interleave(const uint32_t* from, int64_t count, uint32_t* to) {
  for (int64_t k = 0; k < count; ++k) {
    for (int r = 0; r < kRows; ++r) to[k * kRows + r] = from[r * kChunk + k];
  }
}

constexpr void (*kInterleave[kRowChoices])(const uint32_t*, int64_t, uint32_t*) = {
    interleave<1>, interleave<2>, interleave<4>, interleave<8>, interleave<16>};

int64_t padded(int64_t rows) { return rows == 0 ? 0 : int64_t{1} << log2_of_padded_rows(rows); }

// Rows are filled up to a power of two: 9 to 12 of 16 are less work as 8 and the others (M = 9 0.75
// of the time, M = 12 0.88), but not 5 and 6 of 8.
int64_t step_of_rest(int64_t rest, int64_t block_rows) {
  return block_rows == 16 && 8 < rest && rest <= 12 ? 8 : block_rows;
}

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

ActivationPanel::ActivationPanel(const CallShape& shape, int64_t row_begin, int64_t row_end,
                                 const ParallelFor& parallel_for)
    : shape_(shape),
      row_begin_(row_begin),
      block_rows_(shape.operands.dense.block_rows),
      full_blocks_((row_end - row_begin) / block_rows_),
      rest_((row_end - row_begin) % block_rows_),
      rest_step_(step_of_rest(rest_, block_rows_)),
      padded_rows_(full_blocks_ * block_rows_ +
                   (rest_ < rest_step_ ? padded(rest_) : rest_step_ + padded(rest_ - rest_step_))),
      words_(padded_rows_ * words_per_row()),
      group_sums_(
          shape.p.scheme.scales.zeros == ZeroMode::kNone ? 0 : padded_rows_ * shape.groups_pad) {
  const GemmProblem& p = shape.p;
  AlignedBuffer pre_scale(p.pre_scale ? p.k : 0);
  if (p.pre_scale) {
    shape.kernels.to_float({p.element, p.pre_scale, 0}, 1, p.k, pre_scale.data(), 0);
  }
  const float* pre_scale_or_null = p.pre_scale ? pre_scale.data() : nullptr;
  const int64_t k_pad = shape.tiles * kTileK, chunks = ceil_div(k_pad, kChunk);
  const int64_t work = std::min(block_rows_, padded_rows_) * kChunk * 8;  // 8: not just an fma
  parallel_for(0, num_blocks() * chunks, CallShape::grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = i % chunks * kChunk;
      fill_words(i / chunks, k, std::min(k + kChunk, k_pad), pre_scale_or_null);
    }
  });
  if (p.scheme.scales.zeros == ZeroMode::kNone) return;
  parallel_for(0, num_blocks(), CallShape::grain(block_rows_ * k_pad),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) fill_group_sums(i);
               });
}

uint32_t* ActivationPanel::words(int64_t index) const {
  return reinterpret_cast<uint32_t*>(words_.data()) + first_row(index) * words_per_row();
}

float* ActivationPanel::group_sums(int64_t index) const {
  return group_sums_.data() + first_row(index) * shape_.groups_pad;
}

int64_t ActivationPanel::first_row(int64_t index) const {
  const int64_t behind = std::max<int64_t>(0, index - full_blocks_);
  return (index - behind) * block_rows_ + std::min(rest_, behind * rest_step_);
}

ActivationBlock ActivationPanel::block(int64_t index) const {
  const int64_t first = first_row(index), real = first_row(index + 1) - first;
  const int choice = log2_of_padded_rows(real);
  return {row_begin_ + first, real, 1 << choice, choice, words(index), group_sums(index), 1};
}

void ActivationPanel::fill_words(int64_t index, int64_t k_begin, int64_t k_end,
                                 const float* pre_scale) {
  const GemmProblem& p = shape_.p;
  const ActivationBlock to = block(index);
  const int depth = shape_.depth();
  const int64_t real_k = std::max<int64_t>(0, std::min(k_end, p.k) - k_begin);
  const int64_t a_bytes = element_bytes(p.element);
  const auto* from = static_cast<const char*>(p.a) + (to.first * p.a_stride + k_begin) * a_bytes;

  alignas(64) uint32_t rows[kMaxRows * kChunk];
  if (depth == 1) {
    shape_.kernels.to_float({p.element, from, p.a_stride}, to.real, real_k,
                            reinterpret_cast<float*>(rows), kChunk);
  }
  for (int64_t r = 0; r < to.rows; ++r, from += p.a_stride * a_bytes) {
    uint32_t* row = rows + r * kChunk;
    const int64_t filled = r < to.real ? real_k : 0;
    if (depth == 2) std::memcpy(row, from, filled * 2);  // operands_for(): bf16, no pre_scale
    if (pre_scale) {
      auto* values = reinterpret_cast<float*>(row);
      for (int64_t k = 0; k < filled; ++k) values[k] *= pre_scale[k_begin + k];
    }
    const int64_t word_bytes = 4 / depth;
    std::memset(reinterpret_cast<char*>(row) + filled * word_bytes, 0,
                (k_end - k_begin - filled) * word_bytes);
  }
  kInterleave[to.choice](rows, (k_end - k_begin) / depth, words(index) + k_begin / depth * to.rows);
}

// Sums in double and rounds once: a zero point multiplies them, so errors would not average out.
void ActivationPanel::fill_group_sums(int64_t index) {
  const ActivationBlock of = block(index);
  const int depth = shape_.depth();
  const int64_t group_words = shape_.segments_per_group * kSegmentK / depth;
  float* sums = group_sums(index);
  for (int64_t group = 0; group < shape_.groups_pad; ++group) {
    const int64_t end = std::min((group + 1) * group_words, words_per_row());
    double sum[kMaxRows] = {};
    for (int64_t i = group * group_words; i < end; ++i) {
      for (int r = 0; r < of.rows; ++r) {
        const uint32_t word = of.words[i * of.rows + r];
        sum[r] += depth == 1
                      ? as_float(word)
                      : static_cast<double>(as_float(word << 16)) + as_float(word & ~0xffffu);
      }
    }
    for (int r = 0; r < of.rows; ++r) sums[group * of.rows + r] = static_cast<float>(sum[r]);
  }
}

}  // namespace mixed_gemm::cpu
