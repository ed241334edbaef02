#include "ops/errors.h"

#include "ops/torch_stable.h"

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

// The kind of the refusal with this text, if it is the last one of this thread; else nothing.
std::string error_kind(std::string text) {
  const LastError& error = last_error();
  return text == error.text ? kKindNames[static_cast<int>(error.kind)] : "";
}

}  // namespace

void refuse(ErrorKind kind, const std::string& op, const std::string& text) {
  last_error() = {kind, "mixed_gemm::" + op + ": " + text};
  throw std::runtime_error(last_error().text);
}

}  // namespace mixed_gemm

STABLE_TORCH_LIBRARY_IMPL(mixed_gemm, CompositeExplicitAutograd, m) {
  m.impl("_error_kind", TORCH_BOX(&mixed_gemm::error_kind));
}
