// Rows of int8 A as the dot products read them: converted, K filled up with zeros.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/parallel.h"
#include "cpu/aligned_buffer.h"
#include "cpu/call_shape.h"
#include "cpu/integer_kernels.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm::cpu {

class IntegerRows {
 public:
  // Rows [begin, end) of A.
  IntegerRows(const IntegerKernels& kernels, const ScaledMmProblem& p, int64_t begin, int64_t end,
              const ParallelFor& parallel_for)
      : kernels_(kernels),
        tiles_(kernels.tiles && end - begin >= kernels.tiles->min_rows ? kernels.tiles : nullptr),
        stride_(
            round_up(std::max<int64_t>(p.k, 1), tiles_ ? IntegerTiles::kStepK : kernels.k_step)),
        row_bytes_(stride_ * (tiles_ ? 1 : kernels.a_bytes)),
        bytes_(ceil_div(round_up(end - begin, step()) * row_bytes_, 4)),
        start_(!tiles_ && kernels.b_shifted ? end - begin : 0) {
    const auto* a = static_cast<const int8_t*>(p.a) + begin * p.lda;
    const int64_t count = end - begin, work = p.k * step();
    parallel_for(0, ceil_div(count, step()), CallShape::grain(work), [&](int64_t from, int64_t to) {
      for (int64_t i = from * step(); i < std::min(to * step(), count); i += step()) {
        const int8_t* row = a + i * p.lda;
        if (tiles_) {
          tiles_->prepare(row, p.lda, std::min(step(), count - i), p.k, at(i, 0));
          continue;
        }
        kernels_.prepare(row, p.k, at(i, 0));
        if (!start_.empty()) start_[i] = -128 * std::accumulate(row, row + p.k, 0);
      }
    });
  }

  // The tile registers that are to multiply them; null: the dot products.
  const IntegerTiles* tiles() const { return tiles_; }

  // Element k of row i; k is a multiple of k_step. Of tiles the first of the 16 rows from i on.
  char* at(int64_t i, int64_t k) const {
    return reinterpret_cast<char*>(bytes_.data()) + i * row_bytes_ + k * kernels_.a_bytes;
  }
  int64_t stride() const { return stride_; }  // in elements
  // What the sums of row i begin with. In -2^14 * K .. 2^14 * K, so it fits.
  int32_t start(int64_t i) const { return start_.empty() ? 0 : start_[i]; }

 private:
  int64_t step() const { return tiles_ ? IntegerTiles::kRows : 1; }  // rows prepared at a time

  const IntegerKernels& kernels_;
  const IntegerTiles* tiles_;
  int64_t stride_, row_bytes_;
  AlignedBuffer bytes_;
  std::vector<int32_t> start_;
};

}  // namespace mixed_gemm::cpu
