#include "contract/size.h"

#include "core/quant_scheme.h"

namespace mixed_gemm::contract {
namespace {

int64_t applied(Size::Op op, int64_t a, int64_t b) {
  switch (op) {
    case Size::kGroups:
      return a == 0 ? 0 : b == -1 ? 1 : ceil_div(a, b);
    case Size::kBlocks:
      return b == -1 ? 1 : ceil_div(a, b);
    case Size::kRoundUp:
      return round_up(a, b);
    case Size::kTimes:
      return a * b;
    default:
      return a / b;
  }
}

std::string printed(Size::Op op, const std::string& a, const std::string& b) {
  switch (op) {
    case Size::kGroups:
    case Size::kBlocks:
      return "ceil(" + a + "/" + b + ")";
    case Size::kRoundUp:
      return "round_up(" + a + ", " + b + ")";
    case Size::kTimes:
      return a + " * " + b;
    default:
      return a + " / " + b;
  }
}

}  // namespace

int64_t Size::value(const int64_t* symbols) const {
  const Token first = tokens_[0];
  if (count_ == 1) return first.op == kNumber ? first.value : symbols[first.value];
  int64_t stack[kMostTokens];
  int top = 0;
  for (int i = 0; i < count_; ++i) {
    const Token token = tokens_[i];
    if (token.op == kNumber || token.op == kSymbol) {
      stack[top++] = token.op == kNumber ? token.value : symbols[token.value];
    } else {
      --top;
      stack[top - 1] = applied(token.op, stack[top - 1], stack[top]);
    }
  }
  return stack[0];
}

std::string Size::text() const {
  std::string stack[kMostTokens];
  int top = 0;
  for (int i = 0; i < count_; ++i) {
    const Token token = tokens_[i];
    if (token.op == kNumber || token.op == kSymbol) {
      stack[top++] = token.op == kNumber ? std::to_string(token.value) : kSymbolNames[token.value];
    } else {
      --top;
      stack[top - 1] = printed(token.op, stack[top - 1], stack[top]);
    }
  }
  return stack[0];
}

void Size::mark(bool* used) const {
  for (int i = 0; i < count_; ++i) {
    if (tokens_[i].op == kSymbol) used[tokens_[i].value] = true;
  }
}

std::string Size::json() const {
  constexpr const char* kNames[] = {"", "", "groups", "blocks", "round_up", "times", "over"};
  std::string list = "[";
  for (int i = 0; i < count_; ++i) {
    const Token token = tokens_[i];
    list += i > 0 ? ", " : "";
    list += token.op == kNumber
                ? std::to_string(token.value)
                : std::string("\"") +
                      (token.op == kSymbol ? kSymbolNames[token.value] : kNames[token.op]) + "\"";
  }
  return list + "]";
}

}  // namespace mixed_gemm::contract
