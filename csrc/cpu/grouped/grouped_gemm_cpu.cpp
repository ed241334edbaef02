#include "cpu/grouped/grouped_gemm_cpu.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "cpu/gemm/fused.h"
#include "cpu/gemm/gemm_cpu.h"
#include "cpu/gemm/paths.h"
#include "cpu/instruction_set.h"

namespace mixed_gemm {
namespace {

const void* moved(const void* from, int64_t bytes) {
  return from == nullptr ? nullptr : static_cast<const char*>(from) + bytes;
}

// The product of one expert, which has rows [begin, end).
GemmProblem of_expert(const GroupedGemmProblem& problem, int64_t expert, int64_t begin,
                      int64_t end) {
  GemmProblem p = problem.gemm;
  const int64_t item = cpu::element_bytes(p.element);
  const int64_t scales = expert * problem.scale_stride() * item;
  const int64_t columns = expert * problem.column_stride();
  p.m = end - begin;
  p.a = moved(p.a, begin * p.a_stride * item);
  p.b_packed += expert * problem.packed_stride();
  p.scales = moved(p.scales, scales);
  p.zeros = moved(p.zeros, scales);
  if (p.factor != nullptr) p.factor += columns;
  p.bias = moved(p.bias, columns * item);
  p.d = static_cast<char*>(p.d) + begin * p.n * item;
  return p;
}

// Few rows of many experts, which one loop shares out: a task takes the same units of columns of
// all of them, so that tasks are even whatever rows an expert has.
void run_fused(const cpu::CpuKernels& kernels, const std::vector<GemmProblem>& problems,
               const ParallelFor& parallel_for) {
  std::deque<cpu::FusedGemm> gemms;  // whose items stay where they are
  int64_t work = 0;
  for (const GemmProblem& problem : problems) {
    work += gemms.emplace_back(kernels, problem, parallel_for).unit_work();
  }
  const auto count = static_cast<int64_t>(gemms.size());
  if (count == 0) return;
  // Iteration unit * count + i is that unit of gemm i.
  parallel_for(0, gemms.front().units() * count, cpu::CallShape::grain(work / count),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = 0; i < count; ++i) {
                   const int64_t behind = count - 1 - i;
                   gemms[static_cast<size_t>(i)].run((begin + behind) / count,
                                                     (end + behind) / count);
                 }
               });
}

// Many rows of experts. A product with more than the share of one thread is run by all of them, and
// the others by a thread each, the largest first; all by all where there are no more products than
// threads.
void run_blocked(std::vector<GemmProblem> problems, const ParallelFor& parallel_for) {
  std::sort(problems.begin(), problems.end(),
            [](const GemmProblem& a, const GemmProblem& b) { return a.m > b.m; });
  const auto count = static_cast<int64_t>(problems.size());
  int64_t rows = 0;
  for (const GemmProblem& problem : problems) rows += problem.m;
  std::atomic<int64_t> threads{0};
  parallel_for(0, count, 1, [&](int64_t, int64_t) { ++threads; });
  std::atomic<int64_t> next{0};
  const auto of = [&](int64_t i) -> const GemmProblem& { return problems[static_cast<size_t>(i)]; };
  while (next < count && (count - next <= threads || of(next).m * threads > rows)) {
    rows -= of(next).m;
    gemm_cpu(of(next++), parallel_for);
  }
  parallel_for(0, std::min<int64_t>(threads, count - next), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) gemm_cpu(of(i), serial_for);
  });
}

}  // namespace

void grouped_gemm_cpu(const GroupedGemmProblem& problem, const ParallelFor& parallel_for) {
  const GemmProblem& all = problem.gemm;
  if (all.m == 0 || all.n == 0) return;
  const cpu::CpuKernels& kernels = cpu::active_kernels(all.scheme.weight);
  std::vector<GemmProblem> few, many;
  int64_t begin = 0;
  for (int64_t expert = 0; expert < problem.experts; ++expert) {
    const int64_t end = problem.offs[expert];
    if (end == begin) continue;
    const GemmProblem gemm = of_expert(problem, expert, begin, end);
    begin = end;
    const bool is_fused = cpu::choose_path(kernels, gemm) == cpu::GemmPath::kFused;
    (is_fused ? few : many).push_back(gemm);
  }
  run_fused(kernels, few, parallel_for);
  run_blocked(std::move(many), parallel_for);
  const int64_t row_bytes = all.n * cpu::element_bytes(all.element);
  std::memset(static_cast<char*>(all.d) + begin * row_bytes, 0,
              static_cast<size_t>((all.m - begin) * row_bytes));
}

}  // namespace mixed_gemm
