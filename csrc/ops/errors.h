// How an op refuses a call: one text, "mixed_gemm::OP: ARGUMENT must ..., got ...", and what kind
// of mistake it is. Only std::runtime_error crosses the stable ABI, and Python makes RuntimeError
// of it; the kind waits in this thread until mixed_gemm/ops/errors.py asks for it (_error_kind).
// That file builds the texts of the fake kernels in the same way:
// tests/python/ops/test_error_types.py compares.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace mixed_gemm {

enum class ErrorKind {
  kType,         // of a wrong dtype, or no tensor
  kValue,        // a number, a name, a shape, a device that is not accepted
  kUnsupported,  // legal, but this device or this build has no kernel for it
  kMemory,       // out of memory
  kRuntime,      // anything else, such as a launch that failed
};

// "ARGUMENT must EXPECTED, got GOT; BECAUSE. Hint: HINT"; what is empty is left out.
struct Fault {
  std::string argument = "";
  std::string expected = "";
  std::string got = "";
  std::string because = "";
  std::string hint = "";
};

// text: without the name of the op. Remembers the kind, then throws.
[[noreturn]] void refuse(ErrorKind kind, const std::string& op, const std::string& text);
[[noreturn]] void wrong_type(const std::string& op, const Fault& fault);
[[noreturn]] void wrong_value(const std::string& op, const Fault& fault);

// A call of torch's C shims failed: throws with torch's own words where this torch tells them (2.13
// and newer; an older one has printed them).
[[noreturn]] void torch_failed(const char* call, const char* file, int line);

template <typename... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

}  // namespace mixed_gemm

// The parts of the text are evaluated only where the condition fails.
#define MIXED_GEMM_CHECK(kind, condition, op, ...)                                                \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      ::mixed_gemm::refuse(::mixed_gemm::ErrorKind::kind, op, ::mixed_gemm::joined(__VA_ARGS__)); \
    }                                                                                             \
  } while (false)
