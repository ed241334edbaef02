#include "dense/conv.h"

#include "dense/gemm.h"
#include "grid/run_context.h"

namespace mixed_gemm {

Status DenseGemm::run(const Choice&, const GemmProblem&, const RunContext& context) {
  return context.dense();
}

Status DenseConv::run(const Choice&, const ConvProblem&, const RunContext& context) {
  return context.dense();
}

}  // namespace mixed_gemm
