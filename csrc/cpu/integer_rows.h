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
  // Prepares rows [begin, end) of A.
  IntegerRows(const IntegerKernels& kernels, const ScaledMmProblem& p, int64_t begin, int64_t end,
              const ParallelFor& parallel_for)
      : IntegerRows(kernels, p.k, end - begin, parallel_for, p.k, [&p, begin] {
          return [&p, begin](int64_t row, int64_t /*count*/) {
            return Source{static_cast<const int8_t*>(p.a) + (begin + row) * p.lda, p.lda};
          };
        }) {}

  struct Source {
    const int8_t* first;
    int64_t stride;
  };
  // Prepares `count` rows of k elements. reader() makes the object by which a thread reads them:
  // reader()(row, rows) is where those rows lie until it is asked for the next ones. read_work: the
  // work for a row, in multiply-adds.
  template <typename Reader>
  IntegerRows(const IntegerKernels& kernels, int64_t k, int64_t count,
              const ParallelFor& parallel_for, int64_t read_work, const Reader& reader)
      : kernels_(kernels),
        tiles_(kernels.tiles && count >= kernels.tiles->min_rows ? kernels.tiles : nullptr),
        stride_(round_up(std::max<int64_t>(k, 1), tiles_ ? IntegerTiles::kStepK : kernels.k_step)),
        row_bytes_(stride_ * (tiles_ ? 1 : kernels.a_bytes)),
        bytes_(ceil_div(round_up(count, step()) * row_bytes_, 4)),
        start_(!tiles_ && kernels.b_shifted ? count : 0) {
    const int64_t grain = CallShape::grain(read_work * step());
    parallel_for(0, ceil_div(count, step()), grain, [&](int64_t from, int64_t to) {
      auto&& read = reader();
      for (int64_t i = from * step(); i < std::min(to * step(), count); i += step()) {
        const Source rows = read(i, std::min(step(), count - i));
        if (tiles_) {
          tiles_->prepare(rows.first, rows.stride, std::min(step(), count - i), k, at(i, 0));
          continue;
        }
        kernels_.prepare(rows.first, k, at(i, 0));
        if (!start_.empty()) start_[i] = -128 * std::accumulate(rows.first, rows.first + k, 0);
      }
    });
  }

  // The kernels on tile registers that are to multiply them; null: the dot products.
  const IntegerTiles* tiles() const { return tiles_; }

  // Element k of row i; k is a multiple of k_step. With tiles, of the first of 16 rows from i on.
  char* at(int64_t i, int64_t k) const {
    return reinterpret_cast<char*>(bytes_.data()) + i * row_bytes_ + k * kernels_.a_bytes;
  }
  int64_t stride() const { return stride_; }  // in elements
  // The number that the sums of row i begin with, in -2^14 * K .. 2^14 * K, so it fits.
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
