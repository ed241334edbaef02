// Every family does this before it launches a product whose rows belong to experts.
#pragma once
#include "core/choice.h"
#include "grid/run_context.h"
#include "grouped/launch.h"

namespace mixed_gemm {

// How a family reads its operands. tile: rows of a row block. least_stride: as stage_activations()
// has it. stages_scales: whether rows of scales start on 16 bytes. lists: whether it reads a list
// of row blocks; otherwise its thread blocks find their rows, and zero those of no expert.
struct GroupedOperands {
  int tile = 0;
  int64_t least_stride = 0;
  bool stages_scales = false, lists = false;
};

// Makes the list of blocks of `tile` rows, and zeroes the rows of no expert.
Status list_rows(const Choice& choice, int tile, const RunContext& context,
                 const GroupedGemmProblem& problem, GroupedWorkload& work);

// Whether a kernel of so many thread blocks reads a list of row blocks (grouped/find_rows.cuh).
inline bool lists_rows(const GroupedGemmProblem& problem, int tile, int64_t blocks_of_rows,
                       const DeviceInfo& device) {
  constexpr int kResident = 4;  // blocks of an SM, about
  const int64_t rows = most_row_blocks(problem.gemm.m, problem.experts, tile);
  return rows * blocks_of_rows > int64_t{kResident} * device.sm_count;
}

// Brings the operands into that form, and makes the list of row blocks where it is read.
Status prepare_grouped(const Choice& choice, const GroupedOperands& operands,
                       const RunContext& context, GroupedGemmProblem& problem,
                       GroupedWorkload& work);

}  // namespace mixed_gemm
