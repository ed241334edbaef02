// One call of an op that has a contract: its arguments off torch's stack, checked, in the layout
// that a kernel asks for, and its results onto the stack.
#pragma once
#include <array>
#include <string_view>

#include "contract/contract.h"
#include "ops/torch_stable.h"

namespace mixed_gemm {

class Call {
 public:
  explicit Call(const contract::Contract& contract) : contract_(contract) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Takes every argument off the stack before it looks at any, so that a refusal leaks none.
  void take(StableIValue* stack);
  void check();
  // Gives the results, which it no longer owns then.
  void put(StableIValue* stack);

  const char* op() const { return contract_.words(); }
  int64_t operator[](contract::Symbol symbol) const { return given_[symbol]; }
  const contract::Given& given() const { return given_; }
  int64_t number(int at) const { return given_.numbers[at]; }
  double real(int at) const { return given_.reals[at]; }
  std::string text(int at) const { return std::string(given_.texts[at]); }
  const int64_t* list(int at) const { return given_.lists[at]; }
  const std::vector<Tensor>& tensors(int at) const;  // a list of them

  bool has(int at) const { return given_.views[at].is_given(); }
  const contract::View& view(int at) const { return given_.views[at]; }
  ElementType element(int at) const { return contract::element_of(view(at).dtype); }
  // The device type in torch's numbers: a kernel runs on a CPU or on a GPU.
  int32_t device_type(int at) const;
  ScalarType scalar_type(int at) const { return static_cast<ScalarType>(view(at).code); }
  Tensor tensor(int at) const;  // for torch's own functions

  // Pointers to a tensor, null where there is none, or to a copy where it does not lie as asked.
  // The call owns the copy.
  const void* data(int at) const;
  void* mutable_data(int at) const;
  const void* contiguous(int at);
  const void* aligned(int at, uintptr_t bytes);  // contiguous, too
  // Contiguous, and on an address that its elements may be read from: a tensor over a file or over
  // a buffer of somebody else's (torch.frombuffer) begins at any byte.
  const void* elements(int at);
  // A tensor [..., K] as rows with one stride.
  const void* rows(int at, int64_t& stride);
  const void* channels_last(int at);  // of images
  // Matrices of one shape whose rows are contiguous, with one stride for both; the second may not
  // be there. Returns the stride.
  int64_t matrices(int first, int second);
  void replace(int at, const Tensor& tensor);

  // Makes the i-th result as the contract says; returns its data.
  void* make(int i);
  void give(int i, const Tensor& made);  // in place of what was made
  bool returns_text() const { return contract_.results[0].form == contract::Result::kText; }
  void print(const std::string& text);
  Tensor result(int i) const;

 private:
  static constexpr int kMostTexts = 3, kMostLists = 4, kMostResults = 3;
  bool is_left_out(const contract::Result& result) const;
  const contract::Contract& contract_;
  contract::Given given_;
  std::array<AtenTensorHandle, contract::kMostArguments> tensors_{};
  std::array<AtenTensorHandle, kMostResults> results_{};
  std::array<StringHandle, kMostTexts> texts_{};
  std::array<std::vector<int64_t>, kMostLists> lists_;
  std::vector<Tensor> tensor_list_;
  std::string printed_;
};

// The kernel of an op on one backend: kRun makes or gives the results of a checked call.
void run_boxed(const contract::Contract& contract, void (*run)(Call&), StableIValue* stack,
               uint64_t arguments, uint64_t results);

template <const contract::Contract& kContract, void (*kRun)(Call&)>
void boxed(StableIValue* stack, uint64_t arguments, uint64_t results) {
  run_boxed(kContract, kRun, stack, arguments, results);
}

}  // namespace mixed_gemm
