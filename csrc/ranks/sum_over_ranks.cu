// The launcher of the sum over ranks.
#include "ranks/sum_over_ranks.cuh"

#include <algorithm>

#include "dequant/with_element.cuh"
#include "grid/launch.cuh"
#include "ranks/sum_over_ranks.h"

namespace mixed_gemm {
namespace {

template <int kMostPeers>
int launch(const SumOverRanksArgs& args, KernelLaunch shape) {
  SumOverRanksParams<kMostPeers> p = {};
  p.term = static_cast<const Piece*>(args.term);
  p.out = static_cast<Piece*>(args.out);
  p.pieces = args.pieces;
  p.rank = args.rank;
  for (int i = 0; i < args.ranks; ++i) p.inboxes[i] = static_cast<char*>(args.inboxes[i]);
  p.layout = args.layout;
  p.counter = reinterpret_cast<unsigned long long*>(args.counter);
  return with_element(args.element, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    return launch_kernel(
        args.few ? sum_few_kernel<Element, kMostPeers> : sum_many_kernel<Element, kMostPeers>,
        shape, p);
  });
}

}  // namespace

int launch_sum_over_ranks(const SumOverRanksArgs& args) {
  const int64_t wanted = args.few ? (args.pieces + kFewThreads - 1) / kFewThreads
                                  : (args.pieces + kChunkPieces - 1) / kChunkPieces;
  const int64_t blocks = args.few ? wanted : std::min<int64_t>(wanted, kManyBlocks);
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(blocks));
  shape.threads = args.few ? kFewThreads : kManyThreads;
  shape.stream = args.stream;
  shape.uses_pdl = args.uses_pdl;
  return args.ranks == 2 ? launch<1>(args, shape) : launch<kMostRanks - 1>(args, shape);
}

}  // namespace mixed_gemm
