// The workspace of a kernel whose blocks share out K, and the kernel behind it.
#pragma once
#include "core/choice.h"
#include "core/quant_scheme.h"
#include "grid/run_context.h"
#include "grid/work.h"

namespace mixed_gemm {

// Makes `work` of a choice. parts: of K that can be shared out, for each tile of the output.
Status share_out(const Choice& choice, const TileConfig& tile, int64_t m, int64_t n, int64_t parts,
                 const RunContext& context, Work& work, bool zero_flags = true);

// Output of a GEMM whose partial sums are in memory: d = activation(channel_scale * sum + bias).
struct FinishedOutput {
  ElementType element = ElementType::kFloat16;
  int64_t m = 0, n = 0;
  const void* channel_scale = nullptr;  // [n] or null
  const void* bias = nullptr;           // [n] or null
  Activation activation = Activation::kIdentity;
  void* d = nullptr;
};

// The second kernel of a parallel split; nothing where K was not split so.
Status reduce_partials(const Work& work, const FinishedOutput& output, const RunContext& context);

}  // namespace mixed_gemm
