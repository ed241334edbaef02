#include "dense/conv.h"

#include "dense/gemm.h"
#include "dense/scaled.h"
#include "grid/run_context.h"

namespace mixed_gemm {

Status DenseGemm::run(const Choice&, const GemmProblem&, const RunContext& context) {
  return context.dense();
}

Status DenseConv::run(const Choice&, const ConvProblem&, const RunContext& context) {
  return context.dense();
}

Status TorchScaled::run(const Choice&, const ScaledMmProblem&, const RunContext& context) {
  return context.dense();
}

Status TorchBlocks::run(const Choice&, const ScaledMmProblem&, const RunContext& context) {
  return context.dense_blocks();
}

}  // namespace mixed_gemm
