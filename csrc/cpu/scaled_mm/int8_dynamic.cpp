// int8 x int8 on the CPU where the rows of A are rounded on the way: the codes and scales of
// quantize_per_token never become tensors.
#include <algorithm>
#include <vector>

#include "cpu/aligned_buffer.h"
#include "cpu/call_shape.h"
#include "cpu/integer_gemm.h"
#include "cpu/quantize/token_row.h"
#include "cpu/scaled_mm/epilogue_cpu.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm::cpu {
namespace {

// The scales and zero points of all rows, and the rows themselves as they are asked for.
class TokenRows {
 public:
  TokenRows(const CpuKernels& kernels, const ScaledMmDynamicProblem& problem)
      : kernels_(kernels),
        p_(problem.rows),
        symmetric_(problem.symmetric()),
        scale_(p_.m),
        azp_(symmetric_ ? 0 : p_.m) {}

  IntegerRows rounded(int64_t begin, int64_t end, const ParallelFor& parallel_for) {
    const int64_t work = 5 * p_.k;  // what quantize_per_token takes, and the copy of the codes
    return {
        *kernels_.int8, p_.k, end - begin, parallel_for, work, [&] {
          const int64_t most = std::min<int64_t>(IntegerTiles::kRows, end - begin);
          return Reader{*this, begin, AlignedBuffer(p_.k), AlignedBuffer(ceil_div(most * p_.k, 4))};
        }};
  }

  ScaledEpilogueCpu::OfRows points() const {
    return {scale_.data(), 1, symmetric_ ? nullptr : azp_.data()};
  }

 private:
  // The rows as one thread reads them.
  struct Reader {
    TokenRows& of;
    int64_t begin;
    AlignedBuffer row, codes;  // one row in fp32; int8 [rows, k]

    IntegerRows::Source operator()(int64_t first, int64_t count) {
      auto* q = reinterpret_cast<int8_t*>(codes.data());
      for (int64_t r = 0; r < count; ++r) {
        of.round(begin + first + r, row.data(), q + r * of.p_.k);
      }
      return {q, of.p_.k};
    }
  };

  void round(int64_t i, float* row, int8_t* q) {
    const char* from = static_cast<const char*>(p_.a) + i * p_.a_stride * element_bytes(p_.element);
    kernels_.to_float({p_.element, from, 0}, 1, p_.k, row, 0);
    const TokenScale chosen = quantize_token(kernels_, row, p_.k, symmetric_, q);
    scale_[i] = chosen.scale;
    if (!symmetric_) azp_[i] = chosen.azp;
  }

  const CpuKernels& kernels_;
  const QuantizePerTokenProblem& p_;
  bool symmetric_;
  std::vector<float> scale_;
  std::vector<int32_t> azp_;
};

// The epilogue with the scales of those rows.
struct TokenEpilogue {
  const ScaledEpilogueCpu& epilogue;
  const TokenRows& rows;
  void finish(const int32_t* sums, int64_t stride, int64_t row, int64_t count, int64_t column,
              int64_t columns) const {
    epilogue.finish(rows.points(), sums, stride, row, count, column, columns);
  }
};

// Up to so many elements of A, as prepared, every thread rounds all of them for itself, which takes
// less time than threads take to meet once more. On two threads of a Xeon with AMX, us, by all /
// shared out: 16 rows by 576 x 1536 23 / 28, 64 rows 55 / 71, 128 rows 148 / 111.
constexpr int64_t kRoundedByAll = 1 << 16;

bool rounded_by_all(const ScaledMmProblem& p) {
  return p.m * round_up(std::max<int64_t>(p.k, 1), IntegerTiles::kStepK) <= kRoundedByAll;
}

}  // namespace

void scaled_mm_int8_dynamic(const CpuKernels& kernels, const ScaledMmDynamicProblem& problem,
                            const ParallelFor& parallel_for) {
  const ScaledMmProblem& p = problem.product;
  const ScaledEpilogueCpu epilogue(kernels, p);
  if (!rounded_by_all(p)) {
    TokenRows tokens(kernels, problem);
    const auto rows_of = [&](int64_t begin, int64_t end) {
      return tokens.rounded(begin, end, parallel_for);
    };
    integer_gemm_of(*kernels.int8, p, rows_of, TokenEpilogue{epilogue, tokens}, parallel_for);
    return;
  }
  const IntegerTasks tasks(p, p.m);
  parallel_for(0, tasks.count, tasks.grain, [&](int64_t begin, int64_t end) {
    TokenRows tokens(kernels, problem);
    const IntegerRows rows = tokens.rounded(0, p.m, serial_for);
    integer_tiles(*kernels.int8, p, rows, tasks, 0, begin, end, TokenEpilogue{epilogue, tokens});
  });
}

}  // namespace mixed_gemm::cpu
