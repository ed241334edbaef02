// How a call is refused, as data: one form of text, and what kind of mistake it is.
#pragma once
#include <cstdint>
#include <sstream>
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
std::string sentence(const Fault& fault);

// text: without the name of the op.
struct Refusal {
  ErrorKind kind;
  std::string text;
};
inline Refusal type_fault(const Fault& fault) { return {ErrorKind::kType, sentence(fault)}; }
inline Refusal value_fault(const Fault& fault) { return {ErrorKind::kValue, sentence(fault)}; }

template <typename... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

std::string sizes_text(const int64_t* sizes, int64_t dims);  // "(3, 4)"

}  // namespace mixed_gemm
