// The launcher of what brings tokens to their experts: a sort of the choices, a copy of the rows.
#include <algorithm>

#include "core/quant_scheme.h"
#include "grid/launch.cuh"
#include "transform/moe_launchers.h"
#include "transform/permute_rows.cuh"
#include "transform/sort_choices.cuh"

namespace mixed_gemm {
namespace {

// Every GPU lets a block opt in to 99 KB or more (sm_86, sm_89 and sm_120).
constexpr int kMostBytes = 96 * 1024;
constexpr int64_t kMostCounters = kMostBytes / sizeof(int) - kMostSortWarps;
// Fewer warps would take longer for their choices than several parts of the experts do.
constexpr int64_t kFewestWarps = 8;

KernelLaunch launch_on(const Pdl& pdl, void* stream) {
  KernelLaunch shape;
  shape.stream = stream;
  shape.uses_pdl = pdl.sms > 0;
  return shape;
}

template <typename Id>
int launch_sort(const SortChoicesParams& p, KernelLaunch shape) {
  if (p.counts != nullptr) {
    KernelLaunch counting = shape;
    counting.smem_bytes = p.part * static_cast<int>(sizeof(int));
    const int error = launch_kernel(sort_counts_kernel<Id>, counting, p);
    if (error != cudaSuccess) return error;
  }
  return launch_kernel(sort_choices_kernel<Id>, shape, p);
}

int sort_choices(const MoePermuteProblem& problem, int32_t* counts, const Pdl& pdl, void* stream) {
  SortChoicesParams p;
  p.ids = problem.ids;
  p.experts = problem.experts;
  p.offs = problem.offs, p.positions = problem.positions;
  p.count = problem.count();
  p.blocks = static_cast<int>(sort_blocks(problem));
  p.counts = p.blocks > 1 ? counts : nullptr;
  const int64_t of_block = ceil_div(p.count, p.blocks);
  const int64_t needed = std::clamp<int64_t>(ceil_div(of_block, 32), 1, kMostSortWarps);
  const int64_t fit = std::max(kMostCounters / p.experts, kFewestWarps);
  p.warps = static_cast<int>(std::min(needed, fit));
  p.part = static_cast<int>(std::min(p.experts, kMostCounters / p.warps));
  p.segment = round_up(ceil_div(of_block, p.warps), 32);
  KernelLaunch shape = launch_on(pdl, stream);
  shape.grid = dim3(static_cast<unsigned>(p.blocks));
  // A thread for each expert, too, which adds up its counts.
  shape.threads =
      static_cast<int>(std::clamp<int64_t>(round_up(p.part, 32), 32 * p.warps, kMostSortThreads));
  const int bytes = (kMostSortWarps + p.warps * p.part) * static_cast<int>(sizeof(int));
  shape.smem_bytes = bytes <= 48 * 1024 ? bytes : kMostBytes;  // see launch_kernel()
  return problem.wide_ids ? launch_sort<int64_t>(p, shape) : launch_sort<int32_t>(p, shape);
}

// Whether rows are whole words that lie on multiples of their size.
bool have_words(const MoePermuteProblem& p, int64_t element, int64_t word) {
  const auto lies_on = [word](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % word == 0;
  };
  return p.k * element % word == 0 && (p.hidden_stride * element % word == 0 || p.tokens == 1) &&
         lies_on(p.hidden) && lies_on(p.rows);
}

template <typename Word>
int permute_rows(const MoePermuteProblem& problem, int64_t element, const Pdl& pdl, void* stream) {
  constexpr int kMostThreads = 128;
  constexpr int64_t kWord = sizeof(Word);
  PermuteRowsParams<Word> p;
  p.hidden = static_cast<const Word*>(problem.hidden);
  p.hidden_stride = problem.hidden_stride * element / kWord;
  p.rows = static_cast<Word*>(problem.rows);
  p.words = problem.k * element / kWord;
  p.tokens = problem.tokens, p.choices = problem.choices;
  p.positions = problem.positions;
  p.sorted = problem.offs + problem.experts - 1;
  KernelLaunch shape = launch_on(pdl, stream);
  shape.threads = static_cast<int>(std::min<int64_t>(round_up(p.words, 32), kMostThreads));
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.words, shape.threads)),
                    static_cast<unsigned>(std::min<int64_t>(p.tokens, 65535)));
  return launch_kernel(permute_rows_kernel<Word>, shape, p);
}

}  // namespace

int launch_moe_permute(const MoePermuteProblem& p, int32_t* counts, const Pdl& pdl, void* stream) {
  const int error = sort_choices(p, counts, pdl, stream);
  if (error != cudaSuccess || p.count() == 0 || p.k == 0) return error;
  const int64_t element = p.element == ElementType::kFloat32 ? 4 : 2;
  if (have_words(p, element, sizeof(uint4))) return permute_rows<uint4>(p, element, pdl, stream);
  return element == 4 ? permute_rows<uint32_t>(p, element, pdl, stream)
                      : permute_rows<uint16_t>(p, element, pdl, stream);
}

}  // namespace mixed_gemm
