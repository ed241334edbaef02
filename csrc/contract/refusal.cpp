#include "contract/refusal.h"

namespace mixed_gemm {

std::string sentence(const Fault& fault) {
  std::string text = fault.argument + " must " + fault.expected;
  if (!fault.got.empty()) text += ", got " + fault.got;
  if (!fault.because.empty()) text += "; " + fault.because;
  if (!fault.hint.empty()) text += ". Hint: " + fault.hint;
  return text;
}

std::string sizes_text(const int64_t* sizes, int64_t dims) {
  std::string text = "(";
  for (int64_t i = 0; i < dims; ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + (dims == 1 ? ",)" : ")");
}

}  // namespace mixed_gemm
