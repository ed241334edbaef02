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
