#include "ops/host_values.h"

#include <algorithm>

namespace mixed_gemm {
namespace {

// The index of an element in row-major order, as "(1, 2)".
std::string index_text(const Tensor& t, int64_t flat) {
  std::vector<int64_t> index(t.sizes().begin(), t.sizes().end());
  for (size_t i = index.size(); i-- > 0;) {
    const int64_t extent = index[i];
    index[i] = flat % extent;
    flat /= extent;
  }
  return sizes_text(index.data(), t.dim());
}

struct Range {
  int64_t low, high;
};

// Refuses values outside of a range, which is that of `of`.
template <typename Int>
void refuse_outside(const char* op, const char* argument, const Tensor& q, Range range,
                    const std::string& of, const char* hint) {
  if (q.numel() == 0) return;
  const Tensor host = on_host(q);
  const auto* values = static_cast<const Int*>(host.const_data_ptr());
  const auto* end = values + host.numel();
  const auto* found =
      std::find_if(values, end, [range](Int x) { return x < range.low || x > range.high; });
  if (found == end) return;
  wrong_value(
      op, {argument, joined("be in ", range.low, "..", range.high, " for ", of),
           joined(static_cast<int64_t>(*found), " at index ", index_text(q, found - values)), "",
           hint});
}

}  // namespace

Tensor on_host(const Tensor& t) {
  if (t.is_cpu()) return as_contiguous(t);
  const torch::stable::Device host(torch::headeronly::DeviceType::CPU);
  Tensor copy = torch::stable::empty(t.sizes(), t.scalar_type(), {}, host);
  torch::stable::copy_(copy, t, false);
  return copy;
}

void check_range(const char* op, const char* argument, const Tensor& q, int64_t bits) {
  if (bits == 8) return;  // int8 cannot leave it
  const int low = -(1 << (bits - 1));
  refuse_outside<int8_t>(op, argument, q, {low, -low - 1}, joined("bits=", bits),
                         "clamp it, or pack with bits=8");
}

void check_codes(const char* op, const char* argument, const Tensor& codes, WeightType weight) {
  const WeightInfo info = weight_info(weight);
  if (info.bits == 8) return;  // any int8 is the bits of one
  refuse_outside<int8_t>(op, argument, codes, {0, (1 << info.bits) - 1}, info.name, "");
}

void check_indices(const char* op, const char* argument, const Tensor& indices, int64_t low,
                   int64_t high, const std::string& of) {
  const bool wide = indices.scalar_type() == ScalarType::Long;
  const auto refuse = wide ? refuse_outside<int64_t> : refuse_outside<int32_t>;
  refuse(op, argument, indices, {low, high}, of, "");
}

}  // namespace mixed_gemm
