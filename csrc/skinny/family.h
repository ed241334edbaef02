// The fpA_intB GEMM of few tokens: every weight goes from memory into one mma fragment. Names:
//   skinny_m8n32w8           8 tokens x 32 columns a block, whose 8 warps share out K
//   skinny_m8n32w8_cluster2  so do the 2 blocks of a cluster (sm_90)
#pragma once
#include "core/family.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct Skinny {
  static const Family<GemmProblem> plan;
  static Run<GemmProblem> run;
};

}  // namespace mixed_gemm
