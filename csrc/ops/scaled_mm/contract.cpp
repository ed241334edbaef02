#include "ops/scaled_mm/contract.h"

#include <algorithm>

#include "problem/extents.h"

namespace mixed_gemm::scaled_mm {
namespace {

using namespace contract;

enum : int { kDynamicScaleB = 2, kDynamicAzpAdj, kDynamicBias };

OperandType operand_of(const View& a) {
  return a.dtype == Dtype::kInt8 ? OperandType::kInt8 : OperandType::kFloat8E4M3;
}

constexpr const char* kOperandWords = "int8 or float8_e4m3fn";
constexpr const char* kBlockScaleA = "(..., ceil(K/block_size[1]))";
constexpr const char* kBlockScaleB = "(ceil(N/block_size[0]), ceil(K/block_size[1]))";
constexpr const char* kBlocks =
    "(rows of the weight, elements of K) that share a scale, of float8 only";

std::optional<Refusal> refuse_operand(Given& given) {
  const View& a = given.views[kA];
  if (a.dtype == Dtype::kInt8 || a.dtype == Dtype::kFloat8E4M3) return {};
  return type_fault(
      {"a", std::string("be ") + kOperandWords, a.dtype_name(), "",
       a.dtype == Dtype::kFloat8E5M2
           ? "mixed_gemm.ops.quantize_fp8(a.float()) makes float8_e4m3fn and its scale"
           : "mixed_gemm.quantize_per_token(a) makes int8 and its scale"});
}

std::optional<Refusal> refuse_sizes_of(OperandType operand, const Given& given) {
  const auto reasons = why_not_scaled_mm(given[M], given[N], given[K], operand);
  if (reasons.empty()) return {};
  return Refusal{ErrorKind::kValue, reasons.front()};
}
std::optional<Refusal> refuse_sizes(Given& given) {
  return refuse_sizes_of(operand_of(given.views[kA]), given);
}
std::optional<Refusal> refuse_int8_sizes(Given& given) {
  return refuse_sizes_of(OperandType::kInt8, given);
}

std::optional<Refusal> refuse_float_with_azp(Given& given) {
  const View& a = given.views[kA];
  if (a.dtype == Dtype::kInt8) return {};
  return type_fault(
      {"a and b", "be int8: zero points are integers", a.dtype_name(), "", "scaled_mm"});
}

std::optional<Refusal> refuse_block_scales(const Given& given, const int64_t* block) {
  const View &a = given.views[kA], &scale_a = given.views[kScaleA], &scale_b = given.views[kScaleB];
  const int64_t m = given[M], n = given[N], k = given[K], blocks_of_k = ceil_div(k, block[1]);
  const auto because = [&] {
    return joined("M=", m, ", N=", n, ", K=", k, ", block_size=", sizes_text(block, 2));
  };
  if (scale_a.dtype != Dtype::kFloat32) {
    return type_fault({"scale_a", "be float32", scale_a.dtype_name()});
  }
  const bool leads = scale_a.dims == a.dims && scale_a.last_size() == blocks_of_k &&
                     std::equal(a.sizes, a.sizes + a.dims - 1, scale_a.sizes);
  const bool is_flat =
      scale_a.dims == 2 && scale_a.sizes[0] == m && scale_a.sizes[1] == blocks_of_k;
  if (!leads && !is_flat) {
    std::vector<int64_t> expected(a.sizes, a.sizes + a.dims);
    expected.back() = blocks_of_k;
    return value_fault(
        {"scale_a", std::string("be ") + kBlockScaleA + " = " + sizes_text(expected.data(), a.dims),
         sizes_text(scale_a.sizes, scale_a.dims), because(),
         "mixed_gemm.ops.quantize_fp8(a, block_size=...) makes it"});
  }
  if (scale_b.dtype != Dtype::kFloat32) {
    return type_fault({"scale_b", "be float32", scale_b.dtype_name()});
  }
  const int64_t expected[] = {ceil_div(n, block[0]), blocks_of_k};
  const bool is_matrix = scale_b.dims == 2;
  if (is_matrix && std::equal(expected, expected + 2, scale_b.sizes)) return {};
  const bool turned =
      is_matrix && scale_b.sizes[0] == expected[1] && scale_b.sizes[1] == expected[0];
  return value_fault({"scale_b",
                      std::string("be ") + kBlockScaleB + " = " + sizes_text(expected, 2),
                      sizes_text(scale_b.sizes, scale_b.dims), because(),
                      turned ? "it looks transposed, pass .t().contiguous()" : ""});
}

template <const Places& kAt>
std::optional<Refusal> refuse_blocks(Given& given) {
  const int64_t* block = given.lists[kAt.block_size];
  const std::vector<int64_t> sizes(block, block + given.list_sizes[kAt.block_size]);
  const std::string reason = why_not_blocks(operand_of(given.views[kA]), sizes);
  if (!reason.empty()) return Refusal{ErrorKind::kValue, reason};
  return refuse_block_scales(given, block);
}

// ---- tables -------------------------------------------------------------------------------------

constexpr Rule kOperands[] = {require(refuse_operand), rows("a"),
                              same_dtype("b", "a"),    column_major("b", "a"),
                              require(refuse_sizes),   floats("out_dtype")};

// The rules for scales of rows and of columns. block_size: the argument that asks for blocks.
constexpr RuleList<2> scale_of_rows(const char* block_size) {
  return {{dtype("scale_a", Dtype::kFloat32).without(block_size),
           along_rows("scale_a", "a").or_one().without(block_size)}};
}
constexpr RuleList<2> scale_of_columns(const char* block_size) {
  return {{dtype("scale_b", Dtype::kFloat32).without(block_size),
           along_columns("scale_b").or_one().without(block_size)}};
}
template <const Places& kAt>
constexpr RuleList<1> block_scales() {
  return {{require(refuse_blocks<kAt>).where_given("block_size")}};
}
constexpr Rule kAzpAdj[] = {dtype("azp_adj", Dtype::kInt32), along_columns("azp_adj")};
constexpr RuleList<5> kZeroPoints =
    together({require(refuse_float_with_azp).where_given("azp_adj")}, kAzpAdj,
             {dtype("azp", Dtype::kInt32).where_given("azp_adj"),
              along_rows("azp", "a")
                  .with_hint("one for all rows is folded into azp_adj")
                  .where_given("azp_adj")});
constexpr RuleList<2> bias_like(const char* dtype_of) {
  return {{same_dtype("bias", dtype_of), shape("bias", {N})}};
}

// block_size: (rows of the weight, elements of K) that share a scale. Said, and not read off the
// shapes of the scales: with N = 1, K of one block or as many rows as blocks those are the same
// for several ways to share them.
constexpr Argument kPlainArguments[] = {
    tensor("a").must_be(kOperandWords, ""),
    tensor("b"),
    tensor("scale_a").must_be("float32", kBlockScaleA, "block_size"),
    tensor("scale_b").must_be("float32", kBlockScaleB, "block_size"),
    optional_tensor("bias"),
    dtype_argument("out_dtype").keyword(),
    optional_pair("block_size").keyword().must_be("", kBlocks)};
constexpr auto kPlainRules =
    placed(kPlainArguments,
           together(kOperands, block_scales<kPlain>().items, scale_of_rows("block_size").items,
                    scale_of_columns("block_size").items, bias_like("out_dtype").items)
               .items);
constexpr auto kPlainResults =
    given_by(kPlainArguments, {leading("a", N).in_dtype_of("out_dtype")});

constexpr Argument kAzpArguments[] = {tensor("a").must_be("int8", ""),
                                      tensor("b"),
                                      tensor("scale_a"),
                                      tensor("scale_b"),
                                      tensor("azp_adj"),
                                      optional_tensor("azp"),
                                      optional_tensor("bias"),
                                      dtype_argument("out_dtype").keyword()};
constexpr auto kAzpRules =
    placed(kAzpArguments, together(kOperands, scale_of_rows("").items, scale_of_columns("").items,
                                   kZeroPoints.items, bias_like("out_dtype").items)
                              .items);
constexpr auto kAzpResults = given_by(kAzpArguments, {leading("a", N).in_dtype_of("out_dtype")});

// One of the names that _plan_scaled_mm lists, for benchmarks and tests; on a CPU what torch runs.
constexpr Argument kForcedArguments[] = {
    tensor("a").must_be(kOperandWords, ""),
    tensor("b"),
    tensor("scale_a").must_be("float32", kBlockScaleA, "block_size"),
    tensor("scale_b").must_be("float32", kBlockScaleB, "block_size"),
    optional_tensor("azp_adj", nullptr),
    optional_tensor("azp", nullptr),
    optional_tensor("bias", nullptr),
    dtype_argument("out_dtype").keyword(),
    text("config").keyword(),
    optional_pair("block_size").keyword().must_be("", kBlocks)};
constexpr auto kForcedRules = placed(
    kForcedArguments,
    together(kOperands, block_scales<kForced>().items, scale_of_rows("block_size").items,
             scale_of_columns("block_size").items, kZeroPoints.items, bias_like("out_dtype").items)
        .items);
constexpr auto kForcedResults =
    given_by(kForcedArguments, {leading("a", N).in_dtype_of("out_dtype")});

// Multiplies float rows, rounded as quantize_per_token rounds them; with zero points where azp_adj,
// the sums of b, is given. The result is in the dtype of a.
constexpr Argument kDynamicArguments[] = {tensor("a"), tensor("b"), tensor("scale_b"),
                                          optional_tensor("azp_adj"), optional_tensor("bias")};
constexpr Rule kDynamicOperands[] = {floats("a"), rows("a"), dtype("b", Dtype::kInt8),
                                     column_major("b", "a"), require(refuse_int8_sizes)};
constexpr auto kDynamicRules = placed(
    kDynamicArguments,
    together(kDynamicOperands, scale_of_columns("").items, kAzpAdj, bias_like("a").items).items);
constexpr auto kDynamicResults = given_by(kDynamicArguments, {leading("a", N)});

// ---- problems -----------------------------------------------------------------------------------

const float* scale(Call& call, int at, int64_t& stride) {
  stride = call.view(at).elements() == 1 ? 0 : 1;
  return static_cast<const float*>(call.elements(at));
}

// Fills in sizes and b, of which nothing is copied.
ScaledMmProblem of_sizes(Call& call) {
  ScaledMmProblem p;
  p.m = call[M], p.n = call[N], p.k = call[K];
  p.b = call.data(kB);
  p.ldb = p.n > 1 ? call.view(kB).strides[1] : p.k;
  return p;
}

}  // namespace

ScaledMmProblem problem_of(Call& call, const Places& at) {
  ScaledMmProblem p = of_sizes(call);
  p.operand = operand_of(call.view(kA));
  p.out = call.element(at.out_dtype);
  p.a = call.rows(kA, p.lda);
  p.scale_a = scale(call, kScaleA, p.scale_a_stride);
  p.scale_b = scale(call, kScaleB, p.scale_b_stride);
  const int64_t* block = at.block_size < 0 ? nullptr : call.list(at.block_size);
  if (block != nullptr) {
    p.block_n = block[0], p.block_k = block[1];
    p.scale_a_stride = p.scale_b_stride = ceil_div(p.k, p.block_k);
  }
  if (at.azp_adj >= 0 && call.has(at.azp_adj)) {
    p.azp_adj = static_cast<const int32_t*>(call.elements(at.azp_adj));
    p.azp = static_cast<const int32_t*>(call.elements(at.azp));
  }
  p.bias = call.contiguous(at.bias);
  p.d = call.make(0);
  return p;
}

ScaledMmDynamicProblem dynamic_problem_of(Call& call) {
  ScaledMmDynamicProblem problem;
  QuantizePerTokenProblem& rows = problem.rows;
  rows.element = call.element(kA);
  rows.m = call[M], rows.k = call[K];
  rows.a = call.rows(kA, rows.a_stride);
  ScaledMmProblem& p = problem.product;
  p = of_sizes(call);
  p.out = rows.element;
  p.scale_b = scale(call, kDynamicScaleB, p.scale_b_stride);
  p.azp_adj = static_cast<const int32_t*>(call.elements(kDynamicAzpAdj));
  p.bias = call.contiguous(kDynamicBias);
  p.d = call.make(0);
  return problem;
}

}  // namespace mixed_gemm::scaled_mm

namespace mixed_gemm::contract {

constexpr Contract kScaledMm = {"scaled_mm",
                                scaled_mm::kPlainArguments,
                                scaled_mm::kPlainRules,
                                scaled_mm::kPlainResults,
                                nullptr,
                                true};
constexpr Contract kScaledMmAzp = {"scaled_mm_azp",
                                   scaled_mm::kAzpArguments,
                                   scaled_mm::kAzpRules,
                                   scaled_mm::kAzpResults,
                                   nullptr,
                                   true};
constexpr Contract kScaledMmConfig = {"_scaled_mm_config", scaled_mm::kForcedArguments,
                                      scaled_mm::kForcedRules, scaled_mm::kForcedResults};
constexpr Contract kScaledMmDynamic = {"scaled_mm_dynamic",
                                       scaled_mm::kDynamicArguments,
                                       scaled_mm::kDynamicRules,
                                       scaled_mm::kDynamicResults,
                                       nullptr,
                                       true};

}  // namespace mixed_gemm::contract
