// How an op refuses a call: one text, "mixed_gemm::OP: ARGUMENT must ..., got ...", and what kind
// of mistake it is (contract/refusal.h). Only std::runtime_error crosses the stable ABI, and Python
// makes RuntimeError of it; the kind waits in this thread until mixed_gemm/ops/errors.py asks for
// it (_error_kind).
#pragma once
#include <stdexcept>
#include <string>

#include "contract/refusal.h"

namespace mixed_gemm {

// Remembers the kind, then throws. text: without the name of the op.
[[noreturn]] void refuse(ErrorKind kind, const std::string& op, const std::string& text);
[[noreturn]] void wrong_type(const std::string& op, const Fault& fault);
[[noreturn]] void wrong_value(const std::string& op, const Fault& fault);

// Throws because a call of torch's C shims failed, with torch's own words where this torch tells
// them (2.13 and newer; an older one has printed them).
[[noreturn]] void torch_failed(const char* call, const char* file, int line);

}  // namespace mixed_gemm

// The parts of the text are evaluated only where the condition fails.
#define MIXED_GEMM_CHECK(kind, condition, op, ...)                                                \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ::mixed_gemm::refuse(::mixed_gemm::ErrorKind::kind, op, ::mixed_gemm::joined(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)
