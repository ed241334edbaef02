// The size of an inbox. It is asked with and without kernels, so it is no file of theirs.
#include "ranks/inbox.h"
#include "ops/torch_stable.h"

namespace mixed_gemm {
namespace {

int64_t inbox_bytes(int64_t most_bytes, int64_t ranks) {
  MIXED_GEMM_CHECK(kValue, ranks >= 2 && ranks <= kMostRanks, "_inbox_bytes",
                   "ranks must be from 2 to ", kMostRanks, ", got ", ranks);
  constexpr int64_t kMost = int64_t{1} << 40;
  MIXED_GEMM_CHECK(kValue, most_bytes >= 1 && most_bytes <= kMost, "_inbox_bytes",
                   "most_bytes must be from 1 to ", kMost, ", got ", most_bytes);
  const int64_t chunk = InboxLayout::kChunkBytes;
  return InboxLayout{static_cast<int>(ranks) - 1, (most_bytes + chunk - 1) / chunk}.bytes();
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  m.impl("_inbox_bytes", TORCH_BOX(&mixed_gemm::inbox_bytes));
}
