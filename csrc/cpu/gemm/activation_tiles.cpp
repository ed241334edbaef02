#include "cpu/gemm/activation_tiles.h"

#include <cstring>

namespace mixed_gemm::cpu {
namespace {

constexpr int64_t kChunk = 512;  // elements of K prepared at a time

// The bf16 numbers that hold an element: bf16 has 8 significant bits, fp16 11, fp32 (and a product
// with pre_scale) 24.
int parts_for(const GemmProblem& p) {
  if (p.pre_scale || p.element == ElementType::kFloat32) return 3;
  return p.element == ElementType::kFloat16 ? 2 : 1;
}

}  // namespace

ActivationTiles::ActivationTiles(const CallShape& shape, int64_t row_begin, int64_t row_end,
                                 const ParallelFor& parallel_for)
    : shape_(shape),
      tiles_(*shape.kernels.tiles),
      parts_(parts_for(shape.p)),
      row_begin_(row_begin),
      row_end_(row_end),
      k_pad_(shape.tiles * kTileK),
      words_(round_up(row_end - row_begin, kTileRows) * words_per_row()),
      group_sums_(shape.p.scheme.scales.zeros == ZeroMode::kNone
                      ? 0
                      : round_up(row_end - row_begin, kTileRows) * shape.groups_pad) {
  const GemmProblem& p = shape.p;
  AlignedBuffer pre_scale(p.pre_scale ? p.k : 0);
  if (p.pre_scale) {
    shape.kernels.to_float({p.element, p.pre_scale, 0}, 1, p.k, pre_scale.data(), 0);
  }
  const float* pre_scale_or_null = p.pre_scale ? pre_scale.data() : nullptr;
  const int64_t chunks = ceil_div(k_pad_, kChunk),
                rows = std::min(block_rows(), row_end - row_begin);
  parallel_for(0, num_blocks() * chunks, CallShape::grain(rows * kChunk * parts_ * 4),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t k = i % chunks * kChunk;
                   fill_rows(i / chunks, k, std::min(k + kChunk, k_pad_), pre_scale_or_null);
                 }
               });
  if (p.scheme.scales.zeros == ZeroMode::kNone) return;
  parallel_for(0, num_blocks(), CallShape::grain(rows * k_pad_), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fill_group_sums(i);
  });
}

uint32_t* ActivationTiles::words(int64_t index) const {
  return reinterpret_cast<uint32_t*>(words_.data()) + index * block_rows() * words_per_row();
}

float* ActivationTiles::group_sums(int64_t index) const {
  return group_sums_.data() + index * block_rows() * shape_.groups_pad;
}

ActivationBlock ActivationTiles::block(int64_t index) const {
  const int64_t first = row_begin_ + index * block_rows();
  const int64_t real = std::min(block_rows(), row_end_ - first);
  const int choice = static_cast<int>(ceil_div(real, int64_t{kTileRows})) - 1;
  return {first, real, (choice + 1) * kTileRows, choice, words(index), group_sums(index), parts_};
}

void ActivationTiles::fill_rows(int64_t index, int64_t k_begin, int64_t k_end,
                                const float* pre_scale) {
  const GemmProblem& p = shape_.p;
  const ActivationBlock to = block(index);
  const int64_t count = k_end - k_begin;
  const int64_t real_k = std::max<int64_t>(0, std::min(k_end, p.k) - k_begin);
  const int64_t bytes = element_bytes(p.element), part_stride = int64_t{kTileStep} * to.rows;
  auto* row = reinterpret_cast<uint16_t*>(words(index) + k_begin / 2 * parts_ * to.rows);
  for (int64_t r = 0; r < to.rows; ++r, row += kTileStep) {
    alignas(64) float values[kChunk];  // parts_ == 1: bf16, in half of it
    const int64_t filled = r < to.real ? real_k : 0;
    const char* from =
        static_cast<const char*>(p.a) + ((to.first + r) * p.a_stride + k_begin) * bytes;
    if (parts_ == 1) {
      auto* raw = reinterpret_cast<char*>(values);
      if (filled > 0) std::memcpy(raw, from, filled * 2);
      std::memset(raw + filled * 2, 0, (count - filled) * 2);
      for (int64_t k = 0; k < count; k += kTileStep) {
        std::memcpy(row + k / kTileStep * part_stride, raw + k * 2, kTileStep * 2);
      }
      continue;
    }
    if (filled > 0) shape_.kernels.to_float({p.element, from, 0}, 1, filled, values, 0);
    if (pre_scale) {
      for (int64_t k = 0; k < filled; ++k) values[k] *= pre_scale[k_begin + k];
    }
    std::fill(values + filled, values + count, 0.f);
    tiles_.split(values, count, parts_, row, part_stride);
  }
}

void ActivationTiles::fill_group_sums(int64_t index) {
  const ActivationBlock of = block(index);
  const auto* row = reinterpret_cast<const uint16_t*>(of.words);
  for (int64_t r = 0; r < of.rows; ++r) {
    tiles_.sum_groups(row + r * kTileStep, k_pad_, parts_, int64_t{kTileStep} * of.rows,
                      shape_.segments_per_group, group_sums(index) + r, of.rows);
  }
}

}  // namespace mixed_gemm::cpu
