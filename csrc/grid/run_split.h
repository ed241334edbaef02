// The workspace of a kernel whose blocks share out K, and the kernel behind it.
#pragma once
#include "core/choice.h"
#include "core/quant_scheme.h"
#include "grid/run_context.h"

namespace mixed_gemm {

// How a kernel is to share out K.
struct Shares {
  SplitK split = SplitK::kNone;
  int slices = 1;            // sliced: of K; stream-K: blocks that take shares
  void* partials = nullptr;  // 4-byte sums. parallel: [slices, m, partial_stride(n)]; stream-K: a
                             // tile for each block
  int* flags = nullptr;      // stream-K: an int for each block, zeroed unless said otherwise
};

// parts: of K that can be shared out, for each tile of the output.
Status share_out(const Choice& choice, const TileConfig& tile, int64_t m, int64_t n, int64_t parts,
                 const RunContext& context, Shares& shares, bool zero_flags = true);

// Output of a GEMM whose partial sums are in memory: d = activation(channel_scale * sum + bias).
struct FinishedOutput {
  ElementType element = ElementType::kFloat16;
  int64_t m = 0, n = 0;
  const void* channel_scale = nullptr;  // [n] or null
  const void* bias = nullptr;           // [n] or null
  Activation activation = Activation::kIdentity;
  void* d = nullptr;
};

// The second kernel of a parallel split; nothing for other shares.
Status reduce_partials(const Shares& shares, const FinishedOutput& output,
                       const RunContext& context);

}  // namespace mixed_gemm
