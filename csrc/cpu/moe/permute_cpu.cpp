// Sorts choices by expert: counts, then places, one pass each. What takes time is the copy of the
// rows behind them, which all threads share.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cpu/call_shape.h"
#include "cpu/moe/moe_cpu.h"

namespace mixed_gemm {
namespace {

template <typename Id>
void sort_choices(const MoePermuteProblem& p) {
  const auto* ids = static_cast<const Id*>(p.ids);
  const auto is_expert = [&](Id id) { return id >= 0 && id < p.experts; };
  std::fill(p.offs, p.offs + p.experts, 0);
  for (int64_t i = 0; i < p.count(); ++i) {
    if (is_expert(ids[i])) ++p.offs[ids[i]];
  }
  std::vector<int32_t> next(static_cast<size_t>(p.experts));  // the next row of each expert
  int32_t end = 0;
  for (int64_t e = 0; e < p.experts; ++e) {
    next[static_cast<size_t>(e)] = end;
    end += p.offs[e];
    p.offs[e] = end;
  }
  for (int64_t i = 0; i < p.count(); ++i) {
    p.positions[i] = is_expert(ids[i]) ? next[static_cast<size_t>(ids[i])]++ : -1;
  }
}

}  // namespace

void moe_permute_cpu(const MoePermuteProblem& p, const ParallelFor& parallel_for) {
  p.wide_ids ? sort_choices<int64_t>(p) : sort_choices<int32_t>(p);
  const int64_t element = cpu::element_bytes(p.element), bytes = p.k * element;
  if (bytes == 0) return;
  const int64_t sorted = p.offs[p.experts - 1];
  const auto* from = static_cast<const char*>(p.hidden);
  auto* rows = static_cast<char*>(p.rows);
  parallel_for(0, p.tokens, cpu::CallShape::grain(p.choices * p.k), [&](int64_t t, int64_t last) {
    for (; t < last; ++t) {
      for (int64_t i = t * p.choices; i < (t + 1) * p.choices; ++i) {
        const int32_t row = p.positions[i];
        const char* token = from + t * p.hidden_stride * element;
        if (row >= 0) std::memcpy(rows + row * bytes, token, static_cast<size_t>(bytes));
        if (i >= sorted) std::memset(rows + i * bytes, 0, static_cast<size_t>(bytes));
      }
    }
  });
}

}  // namespace mixed_gemm
