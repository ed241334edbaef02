// Every schema. Ops that take tensors have theirs from their contracts. Kernels register in the
// cpu.cpp and cuda.cpp of each folder, in plan.cpp, ask.cpp and errors.cpp; fakes, autograd and
// autocast in mixed_gemm/ops.
#include "ops/contracts.h"
#include "ops/torch_stable.h"

MIXED_GEMM_SCHEMAS(m) {
  using namespace mixed_gemm::contract;
  for (const Contract* x : kContracts) m.def(schema_text(*x).c_str());
  m.def("_inbox_bytes(int most_bytes, int ranks) -> int");
  // JSON texts behind mixed_gemm.plan, why_not and env.
  m.def(
      "_plan(int m, int n, int k, str dtype, int bits, int group_size, str zero_mode, str device) "
      "-> str");
  m.def(
      "_plan_codes(int m, int n, int k, str dtype, str weight, int group_size, str device) -> str");
  m.def(
      "_plan_grouped(int m, int experts, int n, int k, str dtype, str weight, int group_size, "
      "str zero_mode, str device) -> str");
  m.def(
      "_plan_scaled_mm(int m, int n, int k, str dtype, str out_dtype, str device, "
      "int[2]? block_size=None) -> str");
  m.def("_plan_block_quant_gemm(int m, int n, int k, int block_size, str device) -> str");
  // Why a layer of 8-bit weights makes them dense on a GPU of compute capability sm, or "".
  m.def("_why_not_scaled(str dtype, int sm, int[2]? block_size) -> str");
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
