#include "cpu/awq/awq_cpu.h"

#include <cstring>

#include "cpu/aligned_buffer.h"
#include "cpu/call_shape.h"
#include "cpu/gemm/gemm_cpu.h"
#include "cpu/gemm/paths.h"
#include "cpu/instruction_set.h"
#include "layout/repack.h"

namespace mixed_gemm {
namespace cpu {
namespace {

constexpr int64_t kNarrow = 128;  // columns of a slice that one thread repacks and multiplies
constexpr int64_t kWideBytes = 8 << 20;  // of the packed slice that all threads share

// Columns [begin, end) of an AwqProblem, repacked, as a GemmProblem; reused from slice to slice.
class AwqSlice {
 public:
  AwqSlice(const AwqProblem& problem, int64_t max_columns)
      : p_(problem),
        bytes_(element_bytes(problem.element)),
        groups_(p_.k / p_.group_size),
        packed_(round_up(max_columns, kPadN) * round_up(p_.k, kPadK) / 8),
        scales_(groups_ * max_columns),
        zeros_(groups_ * max_columns),
        output_(p_.m * max_columns) {
    float values[16];
    for (int code = 0; code < 16; ++code)
      values[code] = static_cast<float>(code - AwqLayout::kBias);
    active_kernels().from_float(values, 16, p_.element, zero_of_code_);
  }

  void run(int64_t begin, int64_t end, const ParallelFor& parallel_for) {
    const int64_t columns = end - begin;
    repack(begin, end, parallel_for);
    copy_rows(p_.scales, p_.n, begin, columns, groups_, scales_.data());
    fill_zeros(begin, columns);
    GemmProblem slice;
    slice.m = p_.m;
    slice.n = columns;
    slice.k = p_.k;
    slice.element = p_.element;
    slice.scheme = integer_scheme(WeightType::kInt4, p_.group_size, ZeroMode::kSub);
    slice.a = p_.a;
    slice.a_stride = p_.a_stride;
    slice.b_packed = reinterpret_cast<const uint8_t*>(packed_.data());
    slice.scales = scales_.data();
    slice.zeros = zeros_.data();
    slice.scale_stride = columns;
    slice.d = output_.data();
    gemm_cpu(slice, parallel_for);
    for (int64_t row = 0; row < p_.m; ++row) {
      std::memcpy(static_cast<char*>(p_.d) + (row * p_.n + begin) * bytes_,
                  bytes_of(output_) + row * columns * bytes_, columns * bytes_);
    }
  }

 private:
  static char* bytes_of(const AlignedBuffer& buffer) {
    return reinterpret_cast<char*>(buffer.data());
  }

  void repack(int64_t begin, int64_t end, const ParallelFor& parallel_for) {
    const AwqWeight weight{p_.qweight, p_.n, p_.k};
    const int64_t column_bytes = round_up(p_.k, kPadK) / 2;
    auto* packed = reinterpret_cast<uint8_t*>(packed_.data());
    parallel_for(0, ceil_div(end - begin, kNarrow), 1, [&](int64_t first, int64_t last) {
      repack_awq_columns(weight, begin + first * kNarrow, std::min(begin + last * kNarrow, end),
                         packed + first * kNarrow * column_bytes);
    });
  }

  void copy_rows(const void* from, int64_t stride, int64_t column, int64_t columns, int64_t rows,
                 void* to) const {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * columns * bytes_,
                  static_cast<const char*>(from) + (row * stride + column) * bytes_,
                  columns * bytes_);
    }
  }

  void fill_zeros(int64_t begin, int64_t columns) {
    char* to = bytes_of(zeros_);
    for (int64_t group = 0; group < groups_; ++group) {
      const uint32_t* words = p_.qzeros + group * (p_.n / AwqLayout::kPerWord);
      for (int64_t n = begin; n < begin + columns; ++n, to += bytes_) {
        const int code = AwqLayout::code(words[n / AwqLayout::kPerWord], static_cast<int>(n % 8));
        std::memcpy(to, zero_of_code_ + code * bytes_, bytes_);
      }
    }
  }

  const AwqProblem& p_;
  int64_t bytes_, groups_;
  AlignedBuffer packed_, scales_, zeros_, output_;
  alignas(16) char zero_of_code_[16 * 4];
};

}  // namespace
}  // namespace cpu

void gemm_awq_cpu(const AwqProblem& problem, const ParallelFor& parallel_for) {
  using namespace cpu;
  if (problem.m == 0 || problem.n == 0) return;
  const int64_t n = problem.n, narrow = ceil_div(n, kNarrow);
  GemmProblem like;
  like.m = problem.m;
  like.element = problem.element;
  like.scheme.weight = WeightType::kInt4;
  if (choose_path(active_kernels(), like) == GemmPath::kFused) {
    // The scratch of one slice stays in L2 between the repacking and the product.
    const int64_t work = kNarrow * problem.k * (problem.m + 1);
    parallel_for(0, narrow, CallShape::grain(work), [&](int64_t begin, int64_t end) {
      AwqSlice slice(problem, std::min(kNarrow, n));
      for (int64_t i = begin; i < end; ++i) {
        slice.run(i * kNarrow, std::min((i + 1) * kNarrow, n), serial_for);
      }
    });
    return;
  }
  // A is prepared once per slice, so slices are wide.
  const int64_t column_bytes = round_up(problem.k, kPadK) / 2;
  const int64_t wide = std::max(kNarrow, kWideBytes / column_bytes / kNarrow * kNarrow);
  AwqSlice slice(problem, std::min(wide, n));
  for (int64_t begin = 0; begin < n; begin += wide) {
    slice.run(begin, std::min(begin + wide, n), parallel_for);
  }
}

void dequantize_awq_cpu(const AwqProblem& problem, const ParallelFor& parallel_for) {
  const cpu::CpuKernels& kernels = cpu::active_kernels();
  const int64_t n = problem.n, words = n / AwqLayout::kPerWord;
  const int64_t bytes = cpu::element_bytes(problem.element);
  parallel_for(0, problem.k, cpu::CallShape::grain(8 * n), [&](int64_t begin, int64_t end) {
    cpu::AlignedBuffer scales(n), row(n);
    int64_t loaded = -1;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t group = k / problem.group_size;
      if (group != loaded) {
        const char* from = static_cast<const char*>(problem.scales) + group * n * bytes;
        kernels.to_float({problem.element, from, n}, 1, n, scales.data(), n);
        loaded = group;
      }
      const uint32_t* codes = problem.qweight + k * words;
      const uint32_t* zeros = problem.qzeros + group * words;
      for (int64_t j = 0; j < words; ++j) {
        for (int c = 0; c < AwqLayout::kPerWord; ++c) {
          const int64_t i = j * AwqLayout::kPerWord + c;
          const int difference = AwqLayout::code(codes[j], c) - AwqLayout::code(zeros[j], c);
          row.data()[i] = static_cast<float>(difference) * scales.data()[i];
        }
      }
      kernels.from_float(row.data(), n, problem.element,
                         static_cast<char*>(problem.d) + k * n * bytes);
    }
  });
}

}  // namespace mixed_gemm
