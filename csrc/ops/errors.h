// How an op refuses a call: one text, "mixed_gemm::OP: ARGUMENT must be ..., got ...", and what
// kind of mistake it is. Only std::runtime_error crosses the stable ABI, and Python makes
// RuntimeError of it; the kind waits in this thread until mixed_gemm/_errors.py asks for it
// (_error_kind).
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace mixed_gemm {

enum class ErrorKind {
  kType,         // of a wrong dtype, or no tensor
  kValue,        // a number, a name or a shape that is out of range
  kUnsupported,  // legal, but this device or this build has no kernel for it
  kMemory,       // out of memory
  kRuntime,      // anything else, such as a launch that failed
};

// text: without the name of the op. Remembers the kind, then throws.
[[noreturn]] void refuse(ErrorKind kind, const std::string& op, const std::string& text);

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
