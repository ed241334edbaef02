#include "ops/gemm/weight.h"

#include "problem/extents.h"
#include "problem/integer_bits.h"

namespace mixed_gemm::gemm {

using namespace contract;

std::optional<Refusal> refuse_product(int64_t m, const Given& given, int64_t group_size) {
  const std::string wrong_bits = why_not_bits(given[Bits]);
  if (!wrong_bits.empty()) return Refusal{ErrorKind::kValue, wrong_bits};
  return refuse_sizes(m, given, group_size);
}

std::optional<Refusal> refuse_sizes(int64_t m, const Given& given, int64_t group_size) {
  const int64_t n = given[N], k = given[K];
  auto reasons = why_not_problem(m, n, k, -1);  // whatever the groups
  if (!reasons.empty()) return Refusal{ErrorKind::kValue, reasons.front()};
  if (group_size == -1) return {};
  reasons = why_not_problem(m, n, k, group_size);
  if (reasons.empty()) return {};
  return Refusal{ErrorKind::kValue, joined(reasons.front(), ". Hint: group_size=",
                                           nearest_group_size(k, group_size), " is accepted")};
}

std::optional<Refusal> refuse_packed_k(const Given& given, int dims) {
  const View& packed = given.views[kPackedOfProduct];
  const int64_t k = given[K], bits = given[Bits];
  if (packed.dims != dims || round_up(k, kPadK) * bits / 8 == packed.last_size()) return {};
  const uint64_t packed_k = static_cast<uint64_t>(packed.last_size()) * (8 / bits);
  return value_fault({"K of a", "fit b_packed",
                      joined("K=", k, " (padded ", round_up(k, kPadK), ") and b_packed ",
                             sizes_text(packed.sizes, packed.dims),
                             ", which holds padded K=", packed_k, " at bits=", bits)});
}

GemmProblem integers_of(Call& call, const WeightPlaces& at) {
  return weight_of(call, at, *integer_weight(call[Bits]));
}

GemmProblem codes_of(Call& call, const WeightPlaces& at, WeightType weight) {
  GemmProblem p;
  p.n = call[N], p.k = call[K];
  p.element = call.element(at.scales);
  const int64_t group_size = call[GroupSize] == -1 ? std::max<int64_t>(p.k, 1) : call[GroupSize];
  const bool has_zeros = at.zeros >= 0 && call.has(at.zeros);
  const auto zero_mode =
      has_zeros ? static_cast<ZeroMode>(call.number(at.zero_mode)) : ZeroMode::kNone;
  p.scheme = {weight, {ScaleType::kActivations, group_size, zero_mode}};
  p.b_packed = static_cast<const uint8_t*>(call.aligned(at.packed, 16));
  return p;
}

GemmProblem weight_of(Call& call, const WeightPlaces& at, WeightType weight) {
  GemmProblem p = codes_of(call, at, weight);
  const bool has_zeros = p.scheme.scales.zeros != ZeroMode::kNone;
  p.scale_stride = call.matrices(at.scales, has_zeros ? at.zeros : at.scales);
  p.scales = call.data(at.scales);
  p.zeros = has_zeros ? call.data(at.zeros) : nullptr;
  return p;
}

}  // namespace mixed_gemm::gemm
