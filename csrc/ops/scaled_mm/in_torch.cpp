#include "ops/scaled_mm/in_torch.h"

#include <algorithm>

#include "ops/call_aten.h"

namespace mixed_gemm::scaled_mm {
namespace {

using contract::K;
using contract::M;
using contract::N;
using Sizes = std::vector<int64_t>;

constexpr int64_t kAlignment = 16;  // bytes, of what cuBLAS reads
const std::optional<Tensor> kNoTensor;

bool starts_aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % kAlignment == 0;
}

// Contiguous and aligned, the stride of a single row its length: itself or a copy.
Tensor packed(const Tensor& t, const Sizes& sizes) {
  const Tensor flat = as_contiguous(torch::stable::reshape(t, {-1}));
  return torch::stable::view(starts_aligned(flat) ? flat : torch::stable::clone(flat), sizes);
}

// `[K, N]` with columns that neither overlap nor start off 16 bytes: itself or a copy.
Tensor column_major(const Tensor& b) {
  const int64_t k = b.size(0), n = b.size(1);
  const bool apart = b.stride(1) >= k && b.stride(1) % kAlignment == 0;
  if (b.stride(0) == 1 && apart && starts_aligned(b)) return b;
  return torch::stable::transpose(packed(torch::stable::transpose(b, 0, 1), {n, k}), 0, 1);
}

// One number for each element of `sizes`, of as many or of one.
Tensor repeated(const Tensor& t, const Sizes& as_vector, const Sizes& sizes) {
  const Tensor vector = torch::stable::reshape(t, as_vector);
  return packed(call_aten("aten::expand", "", vector, sizes, false), sizes);
}

// Every row so many times.
Tensor repeated_rows(const Tensor& t, int64_t times) {
  const int64_t rows = t.size(0), columns = t.size(1);
  const Tensor all = call_aten("aten::expand", "", torch::stable::unsqueeze(t, 1),
                               Sizes{rows, times, columns}, false);
  return torch::stable::reshape(all, {rows * times, columns});
}

// out = the product of operands that cuBLAS takes, and of their scales, with one rounding.
void scaled_mm_into(Tensor& out, const Tensor& a, const Tensor& b, const Tensor& scale_a,
                    const Tensor& scale_b, const std::optional<Tensor>& bias, ScalarType type) {
  call_aten("aten::_scaled_mm", "out", a, b, scale_a, scale_b, bias, kNoTensor,
            std::optional<ScalarType>(type), /*use_fast_accum=*/false, out);
}

// torch's addition has a factor, which its stable ABI passes on for a difference alone.
Tensor sum_of(const Tensor& a, const Tensor& b) { return torch::stable::subtract(a, b, -1.0); }

Tensor as_float(const Tensor& t) { return torch::stable::to(t, ScalarType::Float); }

Tensor part(Tensor t, int64_t dim, int64_t first, int64_t length) {
  return torch::stable::narrow(t, dim, first, length);
}

// The fp32 sums and what is added, rounded once into the result, which they may be.
void finish(Tensor& d, const Tensor& sums, const Call& call, int bias) {
  torch::stable::copy_(d, call.has(bias) ? sum_of(sums, call.tensor(bias)) : sums);
}

}  // namespace

// torch writes scales of rows as bfloat16 only: other types take the fp32 sums, so that all of them
// round once.
void multiply_scaled(Call& call, const Places& at) {
  const int64_t m = call[M], n = call[N];
  const Tensor a = packed(call.tensor(kA), {m, call[K]}), b = column_major(call.tensor(kB));
  const Tensor scale_a = call.tensor(kScaleA), scale_b = call.tensor(kScaleB);
  const ElementType element = call.element(at.out_dtype);
  Tensor d = torch::stable::view(call.result(0), {m, n});
  if (element == ElementType::kBFloat16) {
    std::optional<Tensor> bias;
    if (call.has(at.bias)) bias = packed(call.tensor(at.bias), {n});
    scaled_mm_into(d, a, b, repeated(scale_a, {-1, 1}, {m, 1}), repeated(scale_b, {1, -1}, {1, n}),
                   bias, ScalarType::BFloat16);
    return;
  }
  Tensor one = empty_on(scale_a, {});
  torch::stable::fill_(one, 1.0);
  Tensor sums = element == ElementType::kFloat32 ? d : empty_on(scale_a, {m, n});
  scaled_mm_into(sums, a, b, one, one, kNoTensor, ScalarType::Float);
  call_aten("aten::mul_", "Tensor", sums, torch::stable::reshape(scale_b, {1, -1}));
  call_aten("aten::mul_", "Tensor", sums, torch::stable::reshape(scale_a, {-1, 1}));
  finish(d, sums, call, at.bias);
}

void multiply_blocks(Call& call, const Places& at) {
  const int64_t m = call[M], n = call[N], k = call[K];
  const int64_t *block = call.list(at.block_size), size = block[1], blocks = ceil_div(k, size);
  const Tensor a = torch::stable::reshape(call.tensor(kA), {m, k}), b = call.tensor(kB);
  const Tensor scale_a = torch::stable::reshape(call.tensor(kScaleA), {m, blocks});
  const Tensor of_columns =
      part(repeated_rows(call.tensor(kScaleB), std::min(block[0], n)), 0, 0, n);
  Tensor sums = empty_on(scale_a, {m, n}), product = empty_on(scale_a, {m, n});
  torch::stable::zero_(sums);
  for (int64_t g = 0; g < blocks; ++g) {
    const int64_t first = g * size, length = std::min(size, k - first);
    // Into a tensor: autocast leaves this overload alone.
    call_aten("aten::mm", "out", as_float(part(a, 1, first, length)),
              as_float(part(b, 0, first, length)), product);
    const Tensor scales = call_aten("aten::mul", "Tensor", part(scale_a, 1, g, 1),
                                    torch::stable::transpose(part(of_columns, 1, g, 1), 0, 1));
    call_aten("aten::mul_", "Tensor", product, scales);
    sums = sum_of(sums, product);
  }
  Tensor d = torch::stable::view(call.result(0), {m, n});
  finish(d, sums, call, at.bias);
}

}  // namespace mixed_gemm::scaled_mm
