// CUTLASS's epilogue visitor trees (EVT), and the part of a node's interface that all our leaves
// and stores share.
#pragma once
#include "cutlass/cutlass.h"
#include "cutlass/gemm/gemm.h"
// cute/atom/mma_traits_sm100.hpp, which these include, makes an error of
// -Wmissing-field-initializers and leaves it so.
#pragma GCC diagnostic push
#include "cutlass/epilogue/threadblock/default_thread_map_tensor_op.h"
#include "cutlass/epilogue/threadblock/fusion/visitors.hpp"
#pragma GCC diagnostic pop

namespace mixed_gemm {

namespace evt = cutlass::epilogue::threadblock;

template <typename Arguments_>
struct VisitorBase {
  using Arguments = Arguments_;
  using Params = Arguments;
  struct SharedStorage {};

  template <typename Shape>
  static constexpr Params to_underlying_arguments(const Shape&, const Arguments& arguments, void*) {
    return arguments;
  }
  template <typename Shape>
  static size_t get_workspace_size(const Shape&, const Arguments&) {
    return 0;
  }
  CUTLASS_HOST_DEVICE VisitorBase() {}
  CUTLASS_HOST_DEVICE VisitorBase(const Params& params, const SharedStorage&) : params(&params) {}

  const Params* params;
};

}  // namespace mixed_gemm
