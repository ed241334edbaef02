// qconv2d on the CPU: blocks of gathered rows through gemm_cpu.
#include <algorithm>
#include <cstring>

#include "cpu/conv/conv_cpu.h"
#include "cpu/conv/patch_rows.h"
#include "cpu/gemm/gemm_cpu.h"
#include "layout/conv_layout.h"

namespace mixed_gemm {
namespace cpu {
namespace {

constexpr int64_t kScratchBytes = 4 << 20;  // of gathered rows: a share of the last-level cache
constexpr int64_t kLeastRows = 64;          // that pay for decoding the weight once

// Scales and offsets for every group of K: the taps share those of their filter.
class GroupTables {
 public:
  explicit GroupTables(const ConvProblem& p)
      : p_(p),
        groups_(p.shape.in_c, p.shape.taps(), p.block_size),
        expanded_(groups_.count > p.blocks()),
        scales_(expanded_ ? groups_.count * p.shape.out_c : 0),
        offsets_(expanded_ && p.offsets ? groups_.count * p.shape.out_c : 0) {
    if (!expanded_) return;
    expand(p.scales, scales_);
    if (p.offsets) expand(p.offsets, offsets_);
  }

  void fill(GemmProblem& gemm) const {
    gemm.scheme.scales.group = groups_.size;
    gemm.scales = expanded_ ? scales_.data() : p_.scales;
    if (p_.offsets) gemm.zeros = expanded_ ? offsets_.data() : p_.offsets;
    gemm.scale_stride = expanded_ ? p_.shape.out_c : p_.scale_stride;
  }

 private:
  void expand(const void* from, const AlignedBuffer& to) const {
    const int64_t bytes = element_bytes(p_.element), row_bytes = p_.shape.out_c * bytes;
    for (int64_t group = 0; group < groups_.count; ++group) {
      char* row = reinterpret_cast<char*>(to.data()) + group * row_bytes;
      const int64_t block = groups_.block_of_group(group);
      if (block < 0) {
        std::memset(row, 0, row_bytes);
      } else {
        std::memcpy(row, static_cast<const char*>(from) + block * p_.scale_stride * bytes,
                    row_bytes);
      }
    }
  }

  const ConvProblem& p_;
  ConvGroups groups_;
  bool expanded_;
  AlignedBuffer scales_, offsets_;
};

// Copies rows [begin, end) of the GEMM's output, [rows, out_c], into an NCHW tensor.
template <typename Bits>
void scatter_rows(const ConvProblem& p, const Bits* from, int64_t begin, int64_t end,
                  const ParallelFor& parallel_for) {
  const ConvShape& s = p.shape;
  const int64_t pixels = s.out_h * s.out_w, out_c = s.out_c;
  constexpr int64_t kLine = 64 / sizeof(Bits);  // channels of a cache line of `from`
  parallel_for(0, ceil_div(out_c, kLine), CallShape::grain(8 * kLine * (end - begin)),
               [&](int64_t first, int64_t last) {
                 for (int64_t row = begin; row < end;) {
                   const int64_t image = row / pixels, pixel = row % pixels;
                   const int64_t count = std::min(end - row, pixels - pixel);
                   for (int64_t c = first * kLine; c < std::min(last * kLine, out_c); ++c) {
                     const Bits* source = from + (row - begin) * out_c + c;
                     Bits* to = static_cast<Bits*>(p.d) + (image * out_c + c) * pixels + pixel;
                     for (int64_t i = 0; i < count; ++i) to[i] = source[i * out_c];
                   }
                   row += count;
                 }
               });
}

// The rows of a block: blocks are equal, and each stays under kScratchBytes.
int64_t rows_per_block(int64_t rows, int64_t row_bytes) {
  const int64_t most = std::max(kLeastRows, kScratchBytes / row_bytes);
  return round_up(ceil_div(rows, ceil_div(rows, most)), 8);
}

}  // namespace
}  // namespace cpu

void conv_cpu(const ConvProblem& p, const ParallelFor& parallel_for) {
  using namespace cpu;
  const ConvShape& s = p.shape;
  const int64_t bytes = element_bytes(p.element), rows = s.rows();
  if (rows == 0) return;
  GemmProblem gemm;
  gemm.n = s.out_c;
  gemm.k = conv_k(s.in_c, s.taps());
  gemm.element = p.element;
  gemm.scheme.weight = p.weight;
  gemm.scheme.scales.zeros = p.offsets ? ZeroMode::kAdd : ZeroMode::kNone;
  gemm.activation = p.activation;
  gemm.b_packed = p.weight_packed;
  gemm.bias = p.bias;
  const std::optional<int64_t> stride = stride_of_rows_in_place(s, p.input_strides);
  const bool in_place = stride.has_value();
  std::optional<GroupTables> tables;
  if (in_place) {  // the packed bytes of a one-tap filter are those of its matrix
    gemm.k = s.in_c;
    gemm.a_stride = *stride;
    gemm.scheme.scales.group = p.block_size;
    gemm.scales = p.scales;
    gemm.zeros = p.offsets;
    gemm.scale_stride = p.scale_stride;
  } else {
    gemm.a_stride = gemm.k;
    tables.emplace(p).fill(gemm);
  }
  const PatchRows patches(s, p.input, p.input_strides, bytes, channels_per_tap(s.in_c), 0);
  const bool direct = in_place && p.d_channels_last;
  const int64_t step = direct ? rows : rows_per_block(rows, (gemm.k + s.out_c) * bytes);
  const AlignedBuffer a(in_place ? 0 : ceil_div(step * gemm.k * bytes, 4));
  const AlignedBuffer d(p.d_channels_last ? 0 : ceil_div(step * s.out_c * bytes, 4));
  for (int64_t row = 0; row < rows; row += step) {
    gemm.m = std::min(step, rows - row);
    if (in_place) {
      gemm.a = static_cast<const char*>(p.input) + row * gemm.a_stride * bytes;
    } else {
      patches.gather(row, row + gemm.m, a.data(), parallel_for);
      gemm.a = a.data();
    }
    gemm.d = p.d_channels_last ? static_cast<char*>(p.d) + row * s.out_c * bytes
                               : static_cast<void*>(d.data());
    gemm_cpu(gemm, parallel_for);
    if (p.d_channels_last) continue;
    if (bytes == 4) {
      scatter_rows(p, static_cast<const uint32_t*>(gemm.d), row, row + gemm.m, parallel_for);
    } else {
      scatter_rows(p, static_cast<const uint16_t*>(gemm.d), row, row + gemm.m, parallel_for);
    }
  }
}

}  // namespace mixed_gemm
