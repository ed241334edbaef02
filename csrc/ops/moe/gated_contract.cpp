// The gated activation.
#include <limits>

#include "ops/moe/contract.h"

namespace mixed_gemm::moe {
namespace {

using namespace contract;

enum : int { kGateUp, kActivation, kLimit, kAlpha };

std::optional<Refusal> refuse_odd(Given& given) {
  if (given[K] % 2 == 0) return {};
  const View& v = given.views[kGateUp];
  return value_fault({"gate_up", "have an even last dimension, gate and up beside each other",
                      sizes_text(v.sizes, v.dims)});
}

std::optional<Refusal> refuse_alpha(Given& given) {
  const bool takes = given.numbers[kActivation] == static_cast<int>(Gating::kSwigluOai);
  if (takes || given.reals[kAlpha] == 1) return {};
  return value_fault(
      {"alpha", "be 1 unless activation is 'swiglu_oai'", joined(given.reals[kAlpha])});
}

constexpr Argument kArguments[] = {
    tensor("gate_up").must_be("", "with an even K"), text("activation", "\"silu\"").keyword(),
    optional_real("limit").keyword(),
    real("alpha", "1.0").keyword().must_be("", "1 unless activation is swiglu_oai")};
constexpr auto kRules = placed(kArguments, {floats("gate_up"), rows("gate_up"), require(refuse_odd),
                                            choice("activation", kGatingNames), positive("limit"),
                                            positive("alpha"), require(refuse_alpha)});
constexpr auto kResults = given_by(kArguments, {leading("gate_up", K / 2)});

}  // namespace

GatedActivationProblem gated_rows(Call& call) {
  GatedActivationProblem p;
  p.m = call[M], p.inner = call[K] / 2;
  p.element = call.element(kGateUp);
  p.gate.gating = static_cast<Gating>(call.number(kActivation));
  const bool limited = call.given().list_sizes[kLimit] != 0;
  p.gate.limit =
      limited ? static_cast<float>(call.real(kLimit)) : std::numeric_limits<float>::infinity();
  p.gate.alpha = static_cast<float>(call.real(kAlpha));
  p.a = call.rows(kGateUp, p.a_stride);
  p.d = call.make(0);
  return p;
}

}  // namespace mixed_gemm::moe

namespace mixed_gemm::contract {

constexpr Contract kGatedActivation = {"gated_activation", moe::kArguments, moe::kRules,
                                       moe::kResults,      nullptr,         true};

}  // namespace mixed_gemm::contract
