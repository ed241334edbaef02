// CPU side of the convolutions: checked calls -> cpu/.
#include "cpu/conv/conv_cpu.h"
#include "ops/conv/contract.h"

namespace mixed_gemm::conv {
namespace {

// The kernels read whole pixels: an NCHW input is reordered once, not once for every tap.
template <typename Problem>
Problem with_neighbouring_channels(Call& call, Problem p) {
  if (p.shape.in_c == 1 || p.input_strides.c == 1) return p;
  p.input = static_cast<decltype(p.input)>(call.channels_last(kInput));
  p.input_strides = strides_of(call.view(kInput));
  return p;
}

void run_cpu(Call& call) {
  conv_cpu(with_neighbouring_channels(call, problem_of(call)), torch_parallel);
}

void run_int8_cpu(Call& call) {
  conv_int8_cpu(with_neighbouring_channels(call, int8_problem_of(call)), torch_parallel);
}

}  // namespace
}  // namespace mixed_gemm::conv

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("qconv2d", &boxed<contract::kQconv2d, conv::run_cpu>);
  m.impl("qconv2d_int8", &boxed<contract::kQconv2dInt8, conv::run_int8_cpu>);
}
