#include "ops/errors.h"

#include <cstring>

#include "ops/torch_stable.h"

// libtorch exports it from 2.13 on; it is weak, so that the library loads in older ones.
extern "C" const char* torch_exception_get_what_without_backtrace() __attribute__((weak));

namespace mixed_gemm {
namespace {

constexpr const char* kKindNames[] = {"type", "value", "unsupported", "memory", "runtime"};

struct LastError {
  ErrorKind kind = ErrorKind::kRuntime;
  std::string text;
};
LastError& last_error() {
  thread_local LastError error;
  return error;
}

[[noreturn]] void remember_and_throw(ErrorKind kind, std::string text) {
  last_error() = {kind, std::move(text)};
  throw std::runtime_error(last_error().text);
}

// torch has no other way to tell, through its C shims, that an allocator failed.
bool is_out_of_memory(const std::string& words_of_torch) {
  for (const char* words : {"out of memory", "can't allocate memory", "not enough memory"}) {
    if (words_of_torch.find(words) != std::string::npos) return true;
  }
  return false;
}

// The kind of the refusal with this text, if it is the last one of this thread; else nothing.
std::string error_kind(std::string text) {
  const LastError& error = last_error();
  return text == error.text ? kKindNames[static_cast<int>(error.kind)] : "";
}

}  // namespace

void refuse(ErrorKind kind, const std::string& op, const std::string& text) {
  remember_and_throw(kind, "mixed_gemm::" + op + ": " + text);
}
void wrong_type(const std::string& op, const Fault& fault) {
  refuse(ErrorKind::kType, op, sentence(fault));
}
void wrong_value(const std::string& op, const Fault& fault) {
  refuse(ErrorKind::kValue, op, sentence(fault));
}

void torch_failed(const char* call, const char* file, int line) {
  if (torch_exception_get_what_without_backtrace != nullptr) {
    const std::string text = torch_exception_get_what_without_backtrace();
    remember_and_throw(is_out_of_memory(text) ? ErrorKind::kMemory : ErrorKind::kRuntime, text);
  }
  // The name is all there is: a function that makes a tensor, or a copy of one, wants nothing but
  // memory. A product or a convolution of the library may fail for other reasons.
  for (const char* name : {"empty", "contiguous", "clone"}) {
    if (std::strstr(call, name) == nullptr) continue;
    remember_and_throw(ErrorKind::kMemory,
                       "mixed_gemm: out of memory: torch could not allocate a tensor for a result, "
                       "a copy or a workspace (its own words, with the sizes, are on stderr)");
  }
  remember_and_throw(ErrorKind::kRuntime,
                     joined("mixed_gemm: ", call, " failed at ", file, ":", line,
                            "; why is on stderr: torch before 2.13 tells it nobody"));
}

}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  m.impl("_error_kind", TORCH_BOX(&mixed_gemm::error_kind));
}
