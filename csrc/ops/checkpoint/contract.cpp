#include "ops/checkpoint/contract.h"

#include <algorithm>

#include "layout/checkpoint_layout.h"
#include "layout/weight_layout.h"
#include "ops/host_values.h"
#include "problem/gemm.h"

namespace mixed_gemm::checkpoint {
namespace {

using namespace contract;

constexpr int kPerWord = AwqLayout::kPerWord;
constexpr const char* kScaleWords = "(K/group_size, N)";
constexpr const char* kPermHint = "torch.argsort(g_idx, stable=True).to(torch.int32)";

std::optional<Refusal> refuse_extents(int64_t m, const Given& given, int64_t group_size) {
  if (given[K] == 0) return value_fault({"qweight", "have rows", "K=0"});
  const auto reasons = why_not_problem(m, given[N], given[K], group_size);
  if (reasons.empty()) return {};
  return Refusal{ErrorKind::kValue, reasons.front()};
}
std::optional<Refusal> refuse_weight_extents(Given& given) { return refuse_extents(0, given, -1); }
std::optional<Refusal> refuse_gemm_extents(Given& given) {
  return refuse_extents(given[M], given, -1);
}

// The places of a weight's tensors: behind the input, or first.
template <int kFirst>
struct Weight {
  static constexpr int kQweight = kFirst, kScales = kFirst + 1, kZeros = kFirst + 2;

  static std::optional<Refusal> refuse_exchanged(Given& given) {
    const View &scales = given.views[kScales], &zeros = given.views[kZeros];
    if (scales.dtype != Dtype::kInt32 || zeros.dtype == Dtype::kInt32) return {};
    return type_fault({"scales", "be floating and qzeros int32",
                       std::string("int32 and ") + zeros.dtype_name(), "",
                       "scales come before qzeros"});
  }

  // Binds the group size.
  static std::optional<Refusal> refuse_groups(Given& given) {
    const View &scales = given.views[kScales], &zeros = given.views[kZeros];
    const int64_t k = given[K], n = given[N], groups = zeros.sizes[0],
                  words = given.views[kQweight].sizes[1];
    if (groups == 0 || k % groups != 0 || zeros.sizes[1] != words) {
      return value_fault({"qzeros",
                          joined("be (K/group_size, N/8) = (a divisor of ", k, ", ", words, ")"),
                          sizes_text(zeros.sizes, zeros.dims)});
    }
    const auto is_matrix = [&](int64_t first, int64_t second) {
      return scales.dims == 2 && scales.sizes[0] == first && scales.sizes[1] == second;
    };
    if (!is_matrix(groups, n)) {
      const int64_t expected[] = {groups, n};
      return value_fault(
          {"scales", std::string("be ") + kScaleWords + " = " + sizes_text(expected, 2),
           sizes_text(scales.sizes, scales.dims),
           joined("N=", n, " from qweight, K/group_size from qzeros"),
           is_matrix(n, groups) ? "it looks transposed, pass .t().contiguous()" : ""});
    }
    given[GroupSize] = k / groups;
    return refuse_extents(0, given, groups == 1 ? -1 : given[GroupSize]);
  }

  static AwqProblem problem_of(Call& call) {
    AwqProblem p;
    p.n = call[N], p.k = call[K];
    p.group_size = call[GroupSize];
    p.element = call.element(kScales);
    p.qweight = static_cast<const uint32_t*>(call.elements(kQweight));
    p.qzeros = static_cast<const uint32_t*>(call.elements(kZeros));
    p.scales = call.aligned(kScales, kScalesAlignment);
    return p;
  }
  static constexpr uintptr_t kScalesAlignment = 16;  // the CUDA kernels read 8 at once
};

template <int kFirst>
constexpr RuleList<8> weight_rules() {
  return {{words("qweight", "(K, N/8)"), require(Weight<kFirst>::refuse_exchanged),
           words("qzeros", "(K/group_size, N/8)"), bind(K, "qweight", 0),
           bind(N, "qweight", 1, kPerWord), floats("scales"), require(refuse_weight_extents),
           require(Weight<kFirst>::refuse_groups)}};
}

// ---- awq_gemm: its arguments are those of the Triton op it replaces -----------------------------

constexpr int kSplit = 4;
constexpr int64_t kMaxSplit = 32;

std::optional<Refusal> refuse_input(Given& given) {
  const View &input = given.views[kInput], &qweight = given.views[kInput + 1];
  if (input.dims < 1 || input.last_size() != given[K]) {
    return value_fault({"input", joined("be (..., K) = (..., ", given[K], ")"),
                        sizes_text(input.sizes, input.dims),
                        "K from qweight " + sizes_text(qweight.sizes, qweight.dims)});
  }
  given[M] = input.rows();
  return {};
}

std::optional<Refusal> refuse_split(Given& given) {
  const int64_t split = given.numbers[kSplit];
  if (split > 0 && (split & (split - 1)) == 0 && split <= kMaxSplit) return {};
  return value_fault(
      {"split_k_iters", joined("be a power of two in 1..", kMaxSplit), std::to_string(split)});
}

constexpr Argument kGemmArguments[] = {
    tensor("input").must_be("", "(..., K)"), tensor("qweight"),
    tensor("scales").must_be("", kScaleWords), tensor("qzeros"),
    integer("split_k_iters").must_be("", "a power of two in 1..32")};
constexpr Rule kInputDtype[] = {floats("input").with_hint("input.to(scales.dtype)")};
constexpr Rule kInputRules[] = {require(refuse_input),
                                same_dtype("scales", "input").with_hint("scales.to(input.dtype)"),
                                require(refuse_split), require(refuse_gemm_extents)};
constexpr auto kGemmRules =
    placed(kGemmArguments, together(kInputDtype, weight_rules<1>().items, kInputRules).items);
constexpr auto kGemmResults = given_by(kGemmArguments, {leading("input", N)});

constexpr Argument kDequantizeArguments[] = {
    tensor("qweight"), tensor("scales").must_be("", kScaleWords), tensor("qzeros")};
constexpr auto kDequantizeRules = placed(kDequantizeArguments, weight_rules<0>().items);
constexpr auto kDequantizeResults = given_by(kDequantizeArguments, {matrix("scales", K, N)});

// ---- repacking ----------------------------------------------------------------------------------

enum : int { kQweight, kPerm, kBits };

constexpr const char* kBitsWords = "2, 3, 4 or 8";

std::optional<Refusal> refuse_bits(Given& given) {
  const int64_t bits = given.numbers[kBits];
  if (bits == 2 || bits == 3 || bits == 4 || bits == 8) return {};
  return value_fault({"bits", std::string("be ") + kBitsWords, std::to_string(bits), "",
                      "5, 6 and 7 bits are stored in planes (gptq_p), which nothing here reads"});
}

// Binds K.
std::optional<Refusal> refuse_words(Given& given) {
  const View& qweight = given.views[kQweight];
  const int64_t bits = given.numbers[kBits];
  if (given[Words] * 32 % bits != 0) {
    return value_fault({"qweight",
                        joined("have K*bits/32 rows, a multiple of ", bits, " for bits=", bits),
                        sizes_text(qweight.sizes, qweight.dims)});
  }
  given[K] = given[Words] * 32 / bits;
  return {};
}

constexpr Argument kAwqRepackArguments[] = {tensor("qweight")};
constexpr auto kAwqRepackRules =
    placed(kAwqRepackArguments, {words("qweight", "(K, N/8)"), bind(K, "qweight", 0),
                                 bind(N, "qweight", 1, kPerWord), require(refuse_weight_extents)});
constexpr auto kAwqRepackResults = given_by(
    kAwqRepackArguments,
    {matrix("qweight", rounded_up(N, kPadN), rounded_up(K, kPadK) / 2).of_dtype(Dtype::kUint8)});

constexpr Argument kGptqRepackArguments[] = {
    tensor("qweight"), optional_tensor("perm"),
    integer("bits").keyword().binds(Bits).must_be("", kBitsWords)};
constexpr auto kGptqRepackRules =
    placed(kGptqRepackArguments,
           {words("qweight", "(K*bits/32, N)"), require(refuse_bits), bind(Words, "qweight", 0),
            bind(N, "qweight", 1), require(refuse_words), require(refuse_weight_extents),
            dtype("perm", Dtype::kInt32).with_hint(kPermHint), shape("perm", {K})});
// Codes of 2 and 3 bits are packed as 4.
constexpr auto kGptqRepackResults =
    given_by(kGptqRepackArguments,
             {matrix("qweight", rounded_up(N, kPadN),
                     rounded_up(Words* Size(32) / Bits, kPadK) * rounded_up(Bits, 4) / 8)
                  .of_dtype(Dtype::kUint8)});

// Refuses an index outside, where a kernel would read. It is the caller's data on the device, so
// this waits for it.
void check_permutation(const Call& call) {
  const int64_t extent = call[K];
  const Tensor host = on_host(call.tensor(kPerm));
  const auto* indices = static_cast<const int32_t*>(host.const_data_ptr());
  std::vector<bool> seen(static_cast<size_t>(extent));
  for (int64_t i = 0; i < extent; ++i) {
    const int32_t index = indices[i];
    if (index < 0 || index >= extent || seen[static_cast<size_t>(index)]) {
      wrong_value(call.op(), {"perm", joined("hold each of 0..", extent - 1, " once"),
                              joined(index, " at index ", i), "", kPermHint});
    }
    seen[static_cast<size_t>(index)] = true;
  }
}

Repack repack_of(Call& call) {
  Repack repack;
  repack.n = call[N], repack.k = call[K];
  repack.words = static_cast<const uint32_t*>(call.elements(kQweight));
  return repack;
}

}  // namespace

AwqProblem gemm_problem(Call& call) {
  AwqProblem p = Weight<kInput + 1>::problem_of(call);
  p.m = call[M];
  p.a = call.rows(kInput, p.a_stride);
  p.d = call.make(0);
  return p;
}

AwqProblem dequantize_problem(Call& call) {
  AwqProblem p = Weight<0>::problem_of(call);
  p.d = call.make(0);
  return p;
}

Repack awq_repack_problem(Call& call) {
  Repack repack = repack_of(call);
  repack.packed = static_cast<uint8_t*>(call.make(0));
  return repack;
}

Repack gptq_repack_problem(Call& call) {
  Repack repack = repack_of(call);
  repack.bits = static_cast<int>(call[Bits]);
  if (call.has(kPerm)) {
    repack.order = static_cast<const int32_t*>(call.elements(kPerm));
    check_permutation(call);
  }
  repack.packed = static_cast<uint8_t*>(call.make(0));
  return repack;
}

}  // namespace mixed_gemm::checkpoint

namespace mixed_gemm::contract {

constexpr Contract kAwqGemm = {"awq_gemm",
                               checkpoint::kGemmArguments,
                               checkpoint::kGemmRules,
                               checkpoint::kGemmResults,
                               nullptr,
                               true};
constexpr Contract kAwqDequantize = {"awq_dequantize", checkpoint::kDequantizeArguments,
                                     checkpoint::kDequantizeRules, checkpoint::kDequantizeResults};
constexpr Contract kAwqRepack = {"awq_repack", checkpoint::kAwqRepackArguments,
                                 checkpoint::kAwqRepackRules, checkpoint::kAwqRepackResults};
constexpr Contract kGptqRepack = {"gptq_repack", checkpoint::kGptqRepackArguments,
                                  checkpoint::kGptqRepackRules, checkpoint::kGptqRepackResults};

}  // namespace mixed_gemm::contract
