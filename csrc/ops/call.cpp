#include "ops/call.h"

#include "contract/check.h"
#include "ops/views.h"

namespace mixed_gemm {
namespace {

using contract::Argument;
using contract::Dtype;
using contract::Kind;
using contract::Result;
using contract::View;
using torch::stable::detail::to;

void forget(AtenTensorHandle t) {
  if (t != nullptr) aoti_torch_delete_tensor_object(t);
}

AtenTensorHandle another_handle(AtenTensorHandle t) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(t, &handle));
  return handle;
}

}  // namespace

Call::~Call() {
  for (int i = 0; i < contract_.arguments.count; ++i) forget(tensors_[i]);
  for (const AtenTensorHandle t : results_) forget(t);
  for (const StringHandle text : texts_) {
    if (text != nullptr) torch_delete_string(text);
  }
}

void Call::take(StableIValue* stack) {
  size_t lists = 0;
  const auto keep_list = [&](int i, std::vector<int64_t> list) {
    lists_[lists] = std::move(list);
    given_.lists[i] = lists_[lists].data();
    given_.list_sizes[i] = static_cast<int64_t>(lists_[lists++].size());
  };
  size_t texts = 0;
  for (int i = 0; i < contract_.arguments.count; ++i) {
    switch (contract_.arguments[i].kind) {
      case Kind::kTensor:
      case Kind::kWrittenTensor:
        tensors_[i] = to<AtenTensorHandle>(stack[i]);
        break;
      case Kind::kOptionalTensor:
        tensors_[i] = to<std::optional<AtenTensorHandle>>(stack[i]).value_or(nullptr);
        break;
      case Kind::kWrittenTensors:
        tensor_list_ = to<std::vector<Tensor>>(stack[i]);
        break;
      case Kind::kInt:
        given_.numbers[i] = to<int64_t>(stack[i]);
        break;
      case Kind::kOptionalInt: {
        const auto number = to<std::optional<int64_t>>(stack[i]);
        given_.numbers[i] = number.value_or(-1);
        given_.list_sizes[i] = number ? 1 : 0;
        break;
      }
      case Kind::kBool:
        given_.numbers[i] = to<bool>(stack[i]);
        break;
      case Kind::kFloat:
        given_.reals[i] = to<double>(stack[i]);
        break;
      case Kind::kOptionalFloat: {
        const auto number = to<std::optional<double>>(stack[i]);
        given_.reals[i] = number.value_or(0);
        given_.list_sizes[i] = number ? 1 : 0;
        break;
      }
      case Kind::kText:
        // torch's conversion to std::string would never free the copy that it makes.
        texts_[texts++] = to<StringHandle>(stack[i]);
        break;
      case Kind::kDtype:
        set_dtype(given_.views[i], to<int32_t>(stack[i]));
        break;
      case Kind::kPair:
        keep_list(i, to<std::vector<int64_t>>(stack[i]));
        break;
      case Kind::kOptionalPair:
        given_.lists[i] = nullptr;
        if (auto list = to<std::optional<std::vector<int64_t>>>(stack[i])) {
          keep_list(i, std::move(*list));
        }
    }
  }
}

void Call::check() {
  size_t texts = 0;
  for (int i = 0; i < contract_.arguments.count; ++i) {
    const Argument& argument = contract_.arguments[i];
    if (argument.is_tensor()) {
      given_.views[i].state = View::kNone;
      if (tensors_[i] != nullptr) look_at(tensors_[i], given_.views[i]);
    } else if (argument.kind == Kind::kText) {
      const char* text = nullptr;
      size_t length = 0;
      TORCH_ERROR_CODE_CHECK(torch_string_c_str(texts_[texts], &text));
      TORCH_ERROR_CODE_CHECK(torch_string_length(texts_[texts++], &length));
      given_.texts[i] = {text, length};
    }
  }
  if (const auto refusal = contract::check(contract_, given_)) {
    refuse(refusal->kind, op(), refusal->text);
  }
}

// ---- tensors ------------------------------------------------------------------------------------

const std::vector<Tensor>& Call::tensors(int) const { return tensor_list_; }

int32_t Call::device_type(int at) const {
  return view(at).device == contract::kCudaDevice ? aoti_torch_device_type_cuda()
                                                  : aoti_torch_device_type_cpu();
}

Tensor Call::tensor(int at) const { return Tensor(another_handle(tensors_[at])); }

const void* Call::data(int at) const {
  const void* data = nullptr;
  if (has(at)) TORCH_ERROR_CODE_CHECK(torch_get_const_data_ptr(tensors_[at], &data));
  return data;
}

void* Call::mutable_data(int at) const {
  void* data = nullptr;
  if (has(at)) TORCH_ERROR_CODE_CHECK(torch_get_mutable_data_ptr(tensors_[at], &data));
  return data;
}

const void* Call::contiguous(int at) {
  if (!has(at)) return nullptr;
  if (!is_contiguous(view(at))) replace(at, torch::stable::contiguous(tensor(at)));
  return data(at);
}

const void* Call::aligned(int at, uintptr_t bytes) {
  const void* data = contiguous(at);
  if (reinterpret_cast<uintptr_t>(data) % bytes == 0) return data;
  replace(at, torch::stable::clone(tensor(at)));
  return this->data(at);
}

const void* Call::elements(int at) {
  return has(at) ? aligned(at, static_cast<uintptr_t>(view(at).item)) : nullptr;
}

const void* Call::rows(int at, int64_t& stride) {
  const std::optional<int64_t> found = row_stride(view(at));
  if (!found) replace(at, torch::stable::contiguous(tensor(at)));
  stride = found.value_or(view(at).last_size());
  return data(at);
}

const void* Call::channels_last(int at) {
  const View& v = view(at);
  const int64_t expected[] = {v.sizes[1] * v.sizes[2] * v.sizes[3], 1, v.sizes[1] * v.sizes[3],
                              v.sizes[1]};
  bool lies_so = true;
  for (int i = 0; i < 4; ++i) lies_so &= v.sizes[i] == 1 || v.strides[i] == expected[i];
  if (!lies_so) {
    replace(at,
            torch::stable::contiguous(tensor(at), torch::headeronly::MemoryFormat::ChannelsLast));
  }
  return data(at);
}

int64_t Call::matrices(int first, int second) {
  for (const int at : {first, second}) {
    if (has(at) && view(at).sizes[1] > 1 && view(at).strides[1] != 1) contiguous(at);
  }
  if (has(second) && view(first).strides[0] != view(second).strides[0]) {
    contiguous(first);
    contiguous(second);
  }
  return view(first).sizes[0] > 1 ? view(first).strides[0] : view(first).sizes[1];
}

void Call::replace(int at, const Tensor& tensor) {
  const AtenTensorHandle handle = another_handle(tensor.get());
  forget(tensors_[at]);
  tensors_[at] = handle;
  look_at(handle, given_.views[at]);
}

// ---- results ------------------------------------------------------------------------------------

bool Call::is_left_out(const Result& result) const {
  return result.unless_at >= 0 && given_.numbers[result.unless_at] != 0;
}

void* Call::make(int i) {
  const Result& r = contract_.results[i];
  if (is_left_out(r)) return nullptr;
  const View& like = view(r.like_at);
  const int64_t kept = r.form == Result::kSizes ? 0 : like.dims - (r.form == Result::kLeading);
  const int64_t dims = kept + r.dims;
  std::vector<int64_t> extents(static_cast<size_t>(2 * dims));  // sizes, then strides
  int64_t *sizes = extents.data(), *strides = sizes + dims;
  std::copy(like.sizes, like.sizes + kept, sizes);
  for (int k = 0; k < r.dims; ++k) sizes[kept + k] = r.sizes[k].value(given_.symbols);
  set_contiguous_strides(sizes, dims, strides);
  const int32_t code = r.dtype_at >= 0            ? view(r.dtype_at).code
                       : r.dtype == Dtype::kOther ? like.code
                                                  : code_of(r.dtype);
  AtenTensorHandle& made = results_[i];
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(dims, sizes, strides, code,
                                                  device_type(r.like_at), like.index, &made));
  void* data = nullptr;
  TORCH_ERROR_CODE_CHECK(torch_get_mutable_data_ptr(made, &data));
  return data;
}

void Call::give(int i, const Tensor& made) {
  const AtenTensorHandle handle = another_handle(made.get());
  forget(results_[i]);
  results_[i] = handle;
}

void Call::print(const std::string& text) { printed_ = text; }

Tensor Call::result(int i) const { return Tensor(another_handle(results_[i])); }

void Call::put(StableIValue* stack) {
  for (int i = 0; i < contract_.results.count; ++i) {
    const Result& r = contract_.results[i];
    const AtenTensorHandle made = results_[i];
    results_[i] = nullptr;
    if (r.form == Result::kText) {
      stack[i] = torch::stable::detail::from(printed_);
    } else if (r.unless_at < 0) {
      stack[i] = torch::stable::detail::from(made);
    } else {
      stack[i] = torch::stable::detail::from(
          made == nullptr ? std::nullopt : std::optional<AtenTensorHandle>(made));
    }
  }
}

void run_boxed(const contract::Contract& contract, void (*run)(Call&), StableIValue* stack,
               uint64_t arguments, uint64_t results) {
  MIXED_GEMM_CHECK(kRuntime,
                   arguments == static_cast<uint64_t>(contract.arguments.count) &&
                       results == static_cast<uint64_t>(contract.results.count),
                   contract.words(), "called with ", arguments, " arguments for ", results,
                   " results");
  Call call(contract);
  call.take(stack);
  call.check();
  run(call);
  call.put(stack);
}

}  // namespace mixed_gemm
