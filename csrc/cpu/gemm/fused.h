// A product on the fused path, prepared: units of its columns run in any order and on any thread.
#pragma once
#include "cpu/epilogue_cpu.h"
#include "cpu/gemm/activation_panel.h"

namespace mixed_gemm::cpu {

class FusedGemm {
 public:
  // The problem has to live as long.
  FusedGemm(const CpuKernels& kernels, const GemmProblem& problem, const ParallelFor& parallel_for)
      : shape_(problem, kernels), a_(shape_, 0, problem.m, parallel_for), epilogue_(shape_) {}
  FusedGemm(const FusedGemm&) = delete;
  FusedGemm& operator=(const FusedGemm&) = delete;

  int64_t units() const { return shape_.units(); }
  // Multiply-adds of one.
  int64_t unit_work() const { return shape_.kernels.lanes * shape_.tiles * kTileK * shape_.p.m; }
  void run(int64_t unit_begin, int64_t unit_end) const;

 private:
  const CallShape shape_;
  const ActivationPanel a_;
  const EpilogueCpu epilogue_;
};

}  // namespace mixed_gemm::cpu
