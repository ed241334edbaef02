#include "cpu/activation_panel.h"

namespace mixed_gemm::cpu {
namespace {

constexpr int64_t kChunk = 512;  // elements of K converted at a time, 16 KB of stack for 8 rows

int log2_of_padded_rows(int64_t rows) {
  int choice = 0;
  while ((1 << choice) < rows) ++choice;
  return choice;
}

template <int kRows>
void interleave(const float* from, int64_t count, float* to) {
  for (int64_t k = 0; k < count; ++k) {
    for (int r = 0; r < kRows; ++r) to[k * kRows + r] = from[r * kChunk + k];
  }
}

constexpr void (*kInterleave[kRowChoices])(const float*, int64_t, float*) = {
    interleave<1>, interleave<2>, interleave<4>, interleave<8>};

int64_t padded_rows(int64_t rows) {
  const int64_t full = rows / kMaxRows * kMaxRows;
  return rows == full ? rows : full + (1 << log2_of_padded_rows(rows - full));
}

}  // namespace

ActivationPanel::ActivationPanel(const CallShape& shape, int64_t row_begin, int64_t row_end,
                                 const ParallelFor& parallel_for)
    : shape_(shape),
      row_begin_(row_begin),
      row_end_(row_end),
      padded_rows_(padded_rows(row_end - row_begin)),
      values_(padded_rows_ * shape.tiles * kTileK),
      group_sums_(shape.p.scheme.zero_mode == ZeroMode::kNone ? 0
                                                              : padded_rows_ * shape.groups_pad) {
  const GemmProblem& p = shape.p;
  AlignedBuffer pre_scale(p.pre_scale ? p.k : 0);
  if (p.pre_scale) {
    shape.kernels.to_float({p.element, p.pre_scale, 0}, 1, p.k, pre_scale.data(), 0);
  }
  const float* pre_scale_or_null = p.pre_scale ? pre_scale.data() : nullptr;
  const int64_t k_pad = shape.tiles * kTileK, chunks = ceil_div(k_pad, kChunk);
  const int64_t work =
      std::min<int64_t>(kMaxRows, padded_rows_) * kChunk * 8;  // 8: not just an fma
  parallel_for(0, num_blocks() * chunks, CallShape::grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = i % chunks * kChunk;
      fill_values(i / chunks, k, std::min(k + kChunk, k_pad), pre_scale_or_null);
    }
  });
  if (p.scheme.zero_mode == ZeroMode::kNone) return;
  parallel_for(0, num_blocks(), CallShape::grain(kMaxRows * k_pad),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) fill_group_sums(i);
               });
}

ActivationPanel::Block ActivationPanel::block(int64_t index) const {
  const int64_t offset = index * kMaxRows, first = row_begin_ + offset;
  const int64_t real = std::min<int64_t>(kMaxRows, row_end_ - first);
  const int choice = log2_of_padded_rows(real);
  return {first,
          real,
          1 << choice,
          choice,
          {values_.data() + offset * shape_.tiles * kTileK,
           group_sums_.data() + offset * shape_.groups_pad}};
}

void ActivationPanel::fill_values(int64_t index, int64_t k_begin, int64_t k_end,
                                  const float* pre_scale) {
  const GemmProblem& p = shape_.p;
  const Block to = block(index);
  const int64_t real_k = std::max<int64_t>(0, std::min(k_end, p.k) - k_begin);
  alignas(64) float rows[kMaxRows * kChunk];
  const char* from =
      static_cast<const char*>(p.a) + (to.first * p.a_stride + k_begin) * element_bytes(p.element);
  shape_.kernels.to_float({p.element, from, p.a_stride}, to.real, real_k, rows, kChunk);
  for (int64_t r = 0; r < to.rows; ++r) {
    float* row = rows + r * kChunk;
    const int64_t filled = r < to.real ? real_k : 0;
    if (pre_scale) {
      for (int64_t k = 0; k < filled; ++k) row[k] *= pre_scale[k_begin + k];
    }
    std::fill(row + filled, row + (k_end - k_begin), 0.f);
  }
  kInterleave[to.choice](rows, k_end - k_begin,
                         const_cast<float*>(to.data.values) + k_begin * to.rows);
}

// Sums in double, rounded once: a zero point multiplies them, so their error would not average out.
void ActivationPanel::fill_group_sums(int64_t index) {
  const Block to = block(index);
  const int64_t group_k = shape_.segments_per_group * kSegmentK, k_pad = shape_.tiles * kTileK;
  float* sums = const_cast<float*>(to.data.group_sums);
  for (int64_t group = 0; group < shape_.groups_pad; ++group) {
    const int64_t end = std::min((group + 1) * group_k, k_pad);
    double sum[kMaxRows] = {};
    for (int64_t k = group * group_k; k < end; ++k) {
      for (int r = 0; r < to.rows; ++r) sum[r] += to.data.values[k * to.rows + r];
    }
    for (int r = 0; r < to.rows; ++r) sums[group * to.rows + r] = static_cast<float>(sum[r]);
  }
}

}  // namespace mixed_gemm::cpu
