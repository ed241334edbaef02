// The contracts for Python: as JSON, and the check of a call that is only described, with examples
// for the sizes of symbols.
#include <cstdlib>

#include "contract/check.h"
#include "ops/call.h"
#include "ops/contracts.h"

namespace mixed_gemm {
namespace {

using contract::Argument;
using contract::Contract;
using contract::Dtype;
using contract::Given;
using contract::Kind;
using contract::View;

// A string argument. torch's conversion to std::string would never free its copy.
std::string taken_text(StableIValue value) {
  const auto handle = torch::stable::detail::to<StringHandle>(value);
  const char* text = nullptr;
  size_t length = 0;
  TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle, &text));
  TORCH_ERROR_CODE_CHECK(torch_string_length(handle, &length));
  std::string copy(text, length);
  TORCH_ERROR_CODE_CHECK(torch_delete_string(handle));
  return copy;
}

std::string contracts() {
  std::string list = "[";
  for (const Contract* x : contract::kContracts) {
    list += (list.size() > 1 ? ",\n" : "") + json_text(*x);
  }
  return list + "]";
}

// The ops whose Autograd key is the one of ops/autograd/gate.cpp, a line each.
std::string gated() {
  std::string lines;
  for (const Contract* x : contract::kContracts) {
    if (x->is_gated) lines += std::string(x->name) + "\n";
  }
  return lines;
}

// A call as Python wrote it, in the order of the arguments: words, a line each (the dtype of a
// tensor, or nothing where there is none; a dtype; a text; a float in hexadecimals, or nothing),
// and numbers (of a tensor its device, index, dims, sizes and strides; an int; the count and the
// items of a list, of which an optional one that is not given has -1).
class Description {
 public:
  Description(const std::string& words, const std::vector<int64_t>& numbers) : numbers_(numbers) {
    for (size_t begin = 0; begin <= words.size();) {
      const size_t end = std::min(words.find('\n', begin), words.size());
      words_.push_back(words.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  void describe(const Contract& contract, Given& given) {
    for (int i = 0; i < contract.arguments.count; ++i)
      argument(contract.arguments[i].kind, i, given);
  }

 private:
  const std::string& word() { return words_.at(next_word_++); }
  int64_t number() { return numbers_.at(next_number_++); }
  const int64_t* list(int64_t count) {
    const int64_t* first = numbers_.data() + next_number_;
    next_number_ += static_cast<size_t>(count);
    MIXED_GEMM_CHECK(kValue, next_number_ <= numbers_.size(), "_check", "numbers are missing");
    return first;
  }

  void set_dtype(View& v) {
    const std::string& name = word();
    v.dtype = Dtype::kOther;
    v.other_dtype = name.c_str();
    for (int i = 0; i < contract::kDtypes; ++i) {
      if (name == contract::kDtypeNames[i]) v.dtype = static_cast<Dtype>(i);
    }
    v.state = name.empty() ? View::kNone : View::kGiven;
  }

  void tensor(bool is_optional, View& v) {
    set_dtype(v);
    if (v.state == View::kNone) {
      if (!is_optional) v.state = View::kUndefined;
      return;
    }
    v.device = static_cast<int32_t>(number());
    v.index = static_cast<int32_t>(number());
    v.dims = number();
    v.sizes = list(v.dims);
    v.strides = list(v.dims);
    v.storage = -1;
  }

  void argument(Kind kind, int i, Given& given) {
    switch (kind) {
      case Kind::kTensor:
      case Kind::kWrittenTensor:
      case Kind::kOptionalTensor:
        return tensor(kind == Kind::kOptionalTensor, given.views[i]);
      case Kind::kDtype:
        return set_dtype(given.views[i]);
      case Kind::kText:
        given.texts[i] = word();
        return;
      case Kind::kFloat:
        given.reals[i] = std::strtod(word().c_str(), nullptr);
        return;
      case Kind::kOptionalFloat: {
        const std::string& text = word();
        given.reals[i] = std::strtod(text.c_str(), nullptr);
        given.list_sizes[i] = text.empty() ? 0 : 1;
        return;
      }
      case Kind::kInt:
      case Kind::kBool:
        given.numbers[i] = number();
        return;
      case Kind::kOptionalInt:
        given.list_sizes[i] = std::max<int64_t>(number(), 0);
        given.numbers[i] = given.list_sizes[i] == 0 ? -1 : number();
        return;
      case Kind::kPair:
      case Kind::kOptionalPair: {
        const int64_t count = number();
        given.list_sizes[i] = std::max<int64_t>(count, 0);
        const int64_t* items = list(given.list_sizes[i]);
        given.lists[i] = count < 0 ? nullptr : items;
        return;
      }
      case Kind::kWrittenTensors:  // looked at by the kernel, which has their memory
        return;
    }
  }

  std::vector<std::string> words_;
  const std::vector<int64_t>& numbers_;
  size_t next_word_ = 0, next_number_ = 0;
};

void check_described(const std::string& name, const std::string& words,
                     const std::vector<int64_t>& numbers) {
  for (const Contract* x : contract::kContracts) {
    if (name != x->name) continue;
    Given given;
    Description description(words, numbers);
    description.describe(*x, given);
    const auto refusal = contract::check(*x, given);
    if (refusal) refuse(refusal->kind, x->words(), refusal->text);
    return;
  }
  refuse(ErrorKind::kValue, "_check", "no op " + name);
}

void check_boxed(StableIValue* stack, uint64_t, uint64_t) {
  const std::string name = taken_text(stack[0]), words = taken_text(stack[1]);
  check_described(name, words, torch::stable::detail::to<std::vector<int64_t>>(stack[2]));
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CompositeExplicitAutograd, m) {
  m.impl("_contracts", TORCH_BOX(&mixed_gemm::contracts));
  m.impl("_gated", TORCH_BOX(&mixed_gemm::gated));
  m.impl("_check", &mixed_gemm::check_boxed);
}
