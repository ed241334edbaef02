#include "grid/run_split.h"

#include <algorithm>

#include "grid/device_query.h"

namespace mixed_gemm {
namespace {

constexpr int64_t kSumBytes = 4;

}  // namespace

Status share_out(const Choice& c, const TileConfig& tile, int64_t m, int64_t n, int64_t parts,
                 const RunContext& context, Work& work, bool zero_flags) {
  work.resident = context.device.sm_count * tile.min_blocks;
  work.pdl = context.device.pdl();
  work.stream = context.stream;
  work.split = c.split;
  work.slices = c.slices;
  if (c.split == SplitK::kParallel) {
    work.partials = context.allocate(c.slices * m * partial_stride(n) * kSumBytes);
  }
  if (c.split != SplitK::kStreamK) return Status();
  const int64_t all_parts = ceil_div(m, tile.m) * ceil_div(n, tile.n) * parts;
  work.workers = static_cast<int>(std::min<int64_t>(
      all_parts, static_cast<int64_t>(c.blocks_per_sm) * context.device.sm_count));
  work.partials = context.allocate(work.workers * kSumBytes * tile.m * tile.n);
  work.flags =
      static_cast<int*>(context.allocate(work.workers * static_cast<int64_t>(sizeof(int))));
  if (!zero_flags) return Status();
  return cuda_status(
      launch_zero_flags({work.flags, work.workers, context.device.pdl(), context.stream}),
      "zeroing flags");
}

Status reduce_partials(const Work& work, const ReducedOutput& output, const RunContext& context) {
  if (work.split != SplitK::kParallel) return Status();
  const ReduceArgs reduce{output,      work.sums(),          partial_stride(output.n),
                          work.slices, context.device.pdl(), context.stream};
  return cuda_status(launch_reduce_partials(reduce), "reducing partial sums");
}

}  // namespace mixed_gemm
