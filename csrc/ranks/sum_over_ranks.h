// The sum of a term over the GPUs of one host, as plain data and a plain function.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "ranks/inbox.h"

namespace mixed_gemm {

// out = the terms of all ranks, added in fp32 in the order of the ranks and rounded once. All ranks
// give the same sizes and few_bytes.
struct SumOverRanksArgs {
  ElementType element = ElementType::kFloat16;
  const void* term = nullptr;  // of this rank; it and out begin at a multiple of 16 bytes
  void* out = nullptr;
  int64_t pieces = 0;  // of 16 bytes, at least one
  bool few = false;    // sent in units, with at most kFewPieces
  int rank = 0, ranks = 2;
  void* inboxes[kMostRanks] = {};  // of all ranks, as this one sees them
  InboxLayout layout;
  uint64_t* counter = nullptr;  // {sums that are done, blocks of this one that are}; of this rank
  bool uses_pdl = false;
  void* stream = nullptr;
};

// Returns a cudaError_t.
int launch_sum_over_ranks(const SumOverRanksArgs& args);

}  // namespace mixed_gemm
