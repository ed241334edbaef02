#include "grid/device_query.h"
#include "grouped/run.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

namespace {

GroupedWorkload workload(const Choice& c, int tile, const RunContext& context,
                         const GroupedGemmProblem& problem) {
  GroupedWorkload work;
  work.split = c.split;
  work.slices = c.slices;
  work.pdl = context.device.pdl();
  work.stream = context.stream;
  work.rows = {problem.offs, static_cast<int>(problem.experts), static_cast<int>(problem.gemm.m)};
  work.most_row_blocks = static_cast<int>(most_row_blocks(problem.gemm.m, problem.experts, tile));
  return work;
}

}  // namespace

Status list_rows(const Choice& c, int tile, const RunContext& context,
                 const GroupedGemmProblem& problem, GroupedWorkload& work) {
  const GemmProblem& p = problem.gemm;
  work = workload(c, tile, context, problem);
  const int64_t most = work.most_row_blocks;
  auto* count =
      static_cast<int*>(context.allocate(static_cast<int64_t>(sizeof(RowBlock)) * (most + 1)));
  auto* blocks = reinterpret_cast<RowBlock*>(count) + 1;
  work.row_blocks = {blocks, count};
  if (problem.experts == 0) work.most_row_blocks = 0;
  RowBlocksArgs args;
  static_cast<GroupedRows&>(args) = work.rows;
  args.tile = tile;
  args.blocks = blocks;
  args.count = count;
  args.d = p.d;
  args.row_bytes = (p.element == ElementType::kFloat32 ? 4 : 2) * p.n;
  args.pdl = work.pdl;
  args.stream = context.stream;
  return cuda_status(launch_row_blocks(args), "listing the rows of experts");
}

Status prepare_grouped(const Choice& c, const GroupedOperands& operands, const RunContext& context,
                       GroupedGemmProblem& problem, GroupedWorkload& work) {
  GemmProblem& p = problem.gemm;
  Status status = stage_activations(p, operands.least_stride, context);
  if (!status.ok()) return status;
  if (operands.stages_scales) {  // those of all experts are rows of one matrix
    status = stage_scales(p.element, num_groups(p) * problem.experts, p.n, p.scales, p.zeros,
                          p.scale_stride, context);
    if (!status.ok()) return status;
  }
  if (operands.lists) return list_rows(c, operands.tile, context, problem, work);
  work = workload(c, operands.tile, context, problem);
  return Status();
}

}  // namespace mixed_gemm
