// THE lists of the families that run each kind of problem. Where two are predicted to take the same
// time, the one that is listed first runs.
#pragma once
#include "block_gemm/family.h"
#include "conv/family.h"
#include "conv_int8/family.h"
#include "dense/conv.h"
#include "dense/gemm.h"
#include "dense/scaled.h"
#include "dispatch/pointwise.h"
#include "grouped_multistage/family.h"
#include "grouped_plain/family.h"
#include "grouped_skinny/family.h"
#include "grouped_wgmma/family.h"
#include "multistage/family.h"
#include "scaled/family.h"
#include "scaled_skinny/family.h"
#include "scaled_wgmma/family.h"
#include "skinny/family.h"
#include "wgmma/family.h"

namespace mixed_gemm {

template <typename... Members>
struct FamilyList {};

template <typename Problem>
struct FamiliesOf;
template <>
struct FamiliesOf<GemmProblem> {
  using List = FamilyList<Skinny, Multistage, Wgmma, DenseGemm>;
};
template <>
struct FamiliesOf<GroupedGemmProblem> {
  using List = FamilyList<GroupedSkinny, GroupedMultistage, GroupedWgmma, GroupedPlain>;
};
template <>
struct FamiliesOf<ScaledMmProblem> {
  using List = FamilyList<Scaled, ScaledSkinny, ScaledWgmma, TorchScaled, TorchBlocks>;
};
template <>
struct FamiliesOf<BlockGemmProblem> {
  using List = FamilyList<BlockGemm>;
};
template <>
struct FamiliesOf<ConvProblem> {
  using List = FamilyList<ImplicitGemm, Pointwise, DenseConv>;
};
template <>
struct FamiliesOf<ConvInt8Problem> {
  using List = FamilyList<ConvInt8>;
};

}  // namespace mixed_gemm
