// Every schema. Kernels register in the cpu.cpp and cuda.cpp of each folder, in plan.cpp and in
// ask.cpp; fakes, autograd and autocast in mixed_gemm/ops.
#include "ops/contracts.h"
#include "ops/torch_stable.h"

MIXED_GEMM_SCHEMAS(m) {
  using namespace mixed_gemm::contract;
  for (const Contract* x : kContracts) m.def(schema_text(*x).c_str());
  // check: whether values outside the range of `bits` are refused on a GPU too, which waits for it.
  m.def("pack_weights(Tensor q, int bits, *, bool check=False) -> Tensor");
  m.def("unpack_weights(Tensor b_packed, int bits, int n, int k) -> Tensor");
  m.def(
      "dequantize_weights(Tensor b_packed, Tensor scales, Tensor? zeros, *, int bits, int "
      "group_size, "
      "str zero_mode, int n, int k, ScalarType dtype) -> Tensor");
  m.def(
      "fpA_intB_gemm(Tensor a, Tensor b_packed, Tensor scales, Tensor? zeros=None, Tensor? "
      "bias=None, "
      "Tensor? pre_scale=None, *, int bits, int group_size=-1, str zero_mode=\"sub\", "
      "str activation=\"identity\") -> Tensor");
  // The same with a configuration by name (core/choice.h), for tests and benchmarks.
  m.def(
      "fpA_intB_gemm_config(Tensor a, Tensor b_packed, Tensor scales, Tensor? zeros=None, Tensor? "
      "bias=None, "
      "Tensor? pre_scale=None, *, int bits, int group_size=-1, str zero_mode=\"sub\", "
      "str activation=\"identity\", str config) -> Tensor");
  // A filter [Co, Ci, Kh, Kw] as a packed weight (layout/conv_layout.h); scales and offsets are
  // [ceil(Ci / block_size), Co], shared over the taps: w = q * scale + offset.
  m.def("pack_conv_weights(Tensor q, int bits, *, bool check=False) -> Tensor");
  m.def(
      "qconv2d(Tensor input, Tensor weight_packed, Tensor scales, Tensor? offsets=None, Tensor? "
      "bias=None, *, int bits, int block_size=-1, int[2] kernel_size, int[2] stride=1, int[2] "
      "padding=0, int[2] dilation=1, str activation=\"identity\") -> Tensor");
  // weight_sums and b_sums: of the integers of the weight, computed once and trusted. After bias
  // and not keyword-only, where torch's vmap takes no tensors.
  m.def(
      "qconv2d_int8(Tensor input, Tensor weight, Tensor weight_scale, Tensor? bias=None, Tensor? "
      "weight_sums=None, *, float input_scale, int input_zero_point, float output_scale, int "
      "output_zero_point, int clamp_min=-128, int clamp_max=127, int[2] stride=1, int[2] "
      "padding=0, int[2] dilation=1) -> Tensor");
  // With the name of a candidate, for tests and benchmarks; and the names, a line each.
  m.def(
      "_qconv2d_config(Tensor input, Tensor weight_packed, Tensor scales, Tensor? offsets=None, "
      "Tensor? bias=None, *, int bits, int block_size=-1, int[2] kernel_size, int[2] stride=1, "
      "int[2] padding=0, int[2] dilation=1, str activation=\"identity\", str config) -> Tensor");
  m.def(
      "_qconv2d_configs(Tensor input, Tensor weight_packed, Tensor scales, Tensor? offsets=None, "
      "Tensor? bias=None, *, int bits, int block_size=-1, int[2] kernel_size, int[2] stride=1, "
      "int[2] padding=0, int[2] dilation=1, str activation=\"identity\") -> str");
  m.def(
      "_qconv2d_int8_config(Tensor input, Tensor weight, Tensor weight_scale, Tensor? bias=None, "
      "Tensor? weight_sums=None, *, float input_scale, int input_zero_point, float output_scale, "
      "int output_zero_point, int clamp_min=-128, int clamp_max=127, int[2] stride=1, int[2] "
      "padding=0, int[2] dilation=1, str config) -> Tensor");
  m.def(
      "_qconv2d_int8_configs(Tensor input, Tensor weight, Tensor weight_scale, Tensor? bias=None, "
      "Tensor? weight_sums=None, *, float input_scale, int input_zero_point, float output_scale, "
      "int output_zero_point, int clamp_min=-128, int clamp_max=127, int[2] stride=1, int[2] "
      "padding=0, int[2] dilation=1) -> str");
  // CUDA only, of mixed_gemm.parallel: the sum of what all ranks give, in the order of the ranks.
  // inboxes: memory of all ranks (uint8 of _inbox_bytes bytes, zero before the first call), which
  // this one writes; counter: int64 (sums, blocks), zero at first, of this rank alone. A term of at
  // most few_bytes is sent in units (ranks/inbox.h).
  m.def(
      "_sum_over_ranks(Tensor term, Tensor(a!)[] inboxes, Tensor(b!) counter, int rank, int "
      "few_bytes) -> Tensor");
  m.def("_inbox_bytes(int most_bytes, int ranks) -> int");
  // JSON texts behind mixed_gemm.plan, why_not and env.
  m.def(
      "_plan(int m, int n, int k, str dtype, int bits, int group_size, str zero_mode, str device) "
      "-> str");
  m.def(
      "_plan_scaled_mm(int m, int n, int k, str dtype, str out_dtype, str device, "
      "int[2]? block_size=None) -> str");
  m.def("_plan_block_quant_gemm(int m, int n, int k, int block_size, str device) -> str");
  m.def("_device(int index) -> str");
  m.def("_env() -> str");
  // "type", "value", ...: the kind of the last refusal of this thread (ops/errors.h).
  m.def("_error_kind(str text) -> str");
  // The contracts as JSON, the check of a described call, and the ops of ops/autograd/gate.cpp: see
  // ask.cpp.
  m.def("_contracts() -> str");
  m.def("_check(str name, str words, int[] numbers) -> ()");
  m.def("_gated() -> str");
  // Replaces the tuned table (dispatch/tuned_table.h); returns the refused lines as a JSON list.
  m.def("_set_tuned_table(str text) -> str");
}
